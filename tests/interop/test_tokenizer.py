"""The tokenizer against the tiktoken package: same ranks, same pattern, same ids on any text, and the anchors of the published K3 tokenizer.

The program is $K3_BINARY, else the newest build/*/bin/k3. The published rank file is looked for in $K3_TIKTOKEN (its folder or the file),
then in ../shared/data/kimi-k3-tokenizer beside the checkout; tests that need it say that they were skipped otherwise.
"""
import base64
import hashlib
import json
import os
import pathlib
import random
import struct
import subprocess
import unicodedata

import pytest

tiktoken = pytest.importorskip("tiktoken", reason="pip install tiktoken")

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATTERN = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
])
POINTS = [point for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]


def k3_binary():
    named = os.environ.get("K3_BINARY")
    found = [pathlib.Path(named)] if named else sorted(ROOT.glob("build/*/bin/k3"), key=lambda path: path.stat().st_mtime)
    if not found:
        pytest.skip("k3 is not built; K3_BINARY names it")
    return str(found[-1])


def run_k3(*arguments, stdin=b""):
    return subprocess.run([k3_binary(), *map(str, arguments)], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def k3(*arguments, stdin=b""):
    done = run_k3(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def published_folder():
    path = pathlib.Path(os.environ.get("K3_TIKTOKEN", ROOT / "../shared/data/kimi-k3-tokenizer"))
    return path.parent if path.name == "tiktoken.model" else path


def read_ranks(folder):
    lines = (folder / "tiktoken.model").read_text().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}


class Oracle:
    """tiktoken with the ranks of a folder, behind the cuts that the reference makes in huge inputs."""

    def __init__(self, folder):
        self.folder = folder
        ranks = read_ranks(folder)
        names = {"<|end_of_msg|>": 2, "<|open|>": 3, "<|close|>": 4, "<|sep|>": 5, "[BOS]": 0, "[PAD]": 255}
        special = {name: len(ranks) + offset for name, offset in names.items()}
        self.encoding = tiktoken.Encoding("k3", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)

    def encode(self, text, control=False):
        ids = []
        for part in reference_cuts(text):
            ids += self.encoding.encode(part, allowed_special="all") if control else self.encoding.encode_ordinary(part)
        return ids


def reference_cuts(text):
    """Every 400,000 characters, and inside that wherever 25,000 characters in a row are all whitespace or all not."""
    for start in range(0, len(text), 400_000):
        window = text[start:start + 400_000]
        begin, count, blank = 0, 0, None
        for at, character in enumerate(window):
            if character.isspace() == blank:
                count += 1
            else:
                count, blank = 1, character.isspace()
            if count > 25_000:
                yield window[begin:at]
                begin, count = at, 1
        yield window[begin:]


def small_rank_file():
    """256 bytes and merges of neighbours seen in a few words, so that every test runs without the published file."""
    tokens = [bytes([value]) for value in range(256)]
    words = ["the", " the", " and", "ing", "tion", " The", "'s", "ab", "abc", "aa", "aaaa", "  ", "    ", "\n\n", "12", "123", "\u4e2d\u6587", "\u0661", "\u00e9"]
    for word in words:
        data = word.encode()
        tokens += [data[:end] for end in range(2, len(data) + 1) if data[:end] not in tokens]
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(dict.fromkeys(tokens)))


@pytest.fixture(scope="session", params=["small", "published"])
def oracle(request, tmp_path_factory):
    if request.param == "small":
        folder = tmp_path_factory.mktemp("tokenizer")
        (folder / "tiktoken.model").write_text(small_rank_file())
    else:
        folder = published_folder()
        if not (folder / "tiktoken.model").exists():
            pytest.skip("the published K3 tokenizer is not here; K3_TIKTOKEN names its folder")
    return Oracle(folder)


@pytest.fixture(scope="session")
def published(request):
    if not (published_folder() / "tiktoken.model").exists():
        pytest.skip("the published K3 tokenizer is not here; K3_TIKTOKEN names its folder")
    return published_folder()


def encode_all(folder, texts, *flags):
    lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
    out = k3("tokenize", "--tokenizer", folder, "--json-lines", *flags, stdin=lines.encode()).decode().split("\n")
    assert len(out) == len(texts) + 1
    return [[int(word) for word in line.split()] for line in out[:-1]]


def assert_same(oracle, texts, control=False):
    got = encode_all(oracle.folder, texts, *(["--control"] if control else []))
    for text, ids in zip(texts, got):
        assert ids == oracle.encode(text, control), repr(text[:200])


def random_texts(seed, count):
    rng = random.Random(seed)
    by_category = {}
    for point in POINTS:
        by_category.setdefault(unicodedata.category(chr(point)), []).append(chr(point))
    categories = list(by_category)
    marked = list(" \t\n\r'\u2019\u017fKsStTrReEvVlLdDmM\u00a0\u3000\u2003\x1c\x85\u4e2d\u6587\u30a1\u3005\u30071234567890\u0663\u00bd\u2163\u01c5\u02b0\u0627\u00e9\u0301\u0f71\U0001f44d\u200d")
    words = ["'s", "'LL", "'ve", "'Re", "don't", "HTTPServer", "iPhone", "  \n\n  x", "\r\n", " \n", "the ", " and", "tion", "    "]
    makers = [
        lambda: rng.choice(by_category[rng.choice(categories)]),
        lambda: chr(rng.randrange(32, 127)),
        lambda: rng.choice(marked) * rng.choice([1, 1, 1, 2, 3, 7]),
        lambda: rng.choice(words),
        lambda: "".join(rng.choice("abcdeABCDE") for _ in range(rng.randrange(1, 9))),
    ]
    return ["".join(rng.choice(makers)() for _ in range(rng.randrange(60))) for _ in range(count)]


def test_random_unicode(oracle):
    assert_same(oracle, random_texts(1, 10_000))


@pytest.mark.slow
def test_every_code_point_in_its_places(oracle):
    assert_same(oracle, ["".join(f"a{c}B{c}{c}b {c}1{c}'s!{c}" for c in map(chr, POINTS[at:at + 64])) for at in range(0, len(POINTS), 64)])


def test_huge_and_pathological_input(oracle):
    rng = random.Random(2)
    texts = ["a" * 100_000, "ab" * 30_000, " " * 60_000, "!?" * 20_000, "\u4e2d" * 30_000, "\n" * 30_000 + "x", "x" * 24_999 + " " * 25_001 + "\x1c" * 3,
             "".join(rng.choice("abcdefgh") for _ in range(50_000)), "word \u00e9 " * 120_000]
    assert_same(oracle, texts)


def test_control_tokens(oracle):
    rng = random.Random(3)
    parts = ["<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[BOS]", "[PAD]", "<|op", "en|>", "think", " ", "<", "\n", "\u4e2d"]
    texts = ["".join(rng.choice(parts) for _ in range(rng.randrange(20))) for _ in range(2000)]
    assert_same(oracle, texts, control=True)
    assert_same(oracle, texts)


@pytest.mark.slow
def test_decode_is_lossy_as_in_the_reference(oracle):
    rng = random.Random(4)
    for _ in range(30):
        ids = [rng.randrange(len(oracle.encoding._mergeable_ranks)) for _ in range(200)]
        assert k3("detokenize", "--tokenizer", oracle.folder, "-", stdin=json.dumps(ids).encode()).decode() == oracle.encoding.decode(ids)


def test_file_to_ids_and_back(oracle, tmp_path):
    text = "\n".join(random_texts(5, 300)).encode()
    (tmp_path / "text").write_bytes(text)
    ids = k3("tokenize", "--tokenizer", oracle.folder, "--file", tmp_path / "text")
    assert ids.count(b"\n") == 1
    assert k3("detokenize", "--tokenizer", oracle.folder, "-", stdin=ids) == text


def test_bad_input_is_one_line_and_exit_code_2(tmp_path):
    good = tmp_path / "good"
    good.mkdir()
    (good / "tiktoken.model").write_text(small_rank_file())
    gap = tmp_path / "gap"
    gap.mkdir()
    lines = small_rank_file().splitlines()
    (gap / "tiktoken.model").write_text("\n".join(lines[:100] + lines[101:]) + "\n")
    (tmp_path / "latin1.txt").write_bytes("caf\u00e9 au lait".encode("latin-1"))
    (tmp_path / "chat.json").write_text('{"messages": [{"role": "user", "content": 3}]}')
    cases = [
        (["tokenize", "--tokenizer", gap, "--text", "x"], ["tiktoken.model", "gap", "rank 100"]),
        (["tokenize", "--tokenizer", tmp_path, "--text", "x"], ["tiktoken.model"]),
        (["tokenize", "--tokenizer", good, "--file", tmp_path / "latin1.txt"], ["latin1.txt", "byte 3", "UTF-8"]),
        (["tokenize", "--tokenizer", good, "--file", tmp_path / "none.txt"], ["none.txt"]),
        (["detokenize", "--tokenizer", good, "1", "x"], ["x"]),
        (["detokenize", "--tokenizer", good, "99999"], ["99999", "vocabulary"]),
        (["render", tmp_path / "chat.json"], ["chat.json", "messages[0].content"]),
    ]
    for arguments, fragments in cases:
        done = run_k3(*arguments)
        message = done.stderr.decode()
        assert done.returncode == 2 and done.stdout == b"", arguments
        assert message.count("\n") == 1 and all(fragment in message for fragment in fragments), message


ANCHOR = {
    "tools": [{"type": "function", "function": {
        "name": "get_weather", "description": "Get current weather for a location",
        "parameters": {"type": "object", "properties": {"location": {"type": "string", "description": "City name"}}, "required": ["location"]}}}],
    "messages": [{"role": "user", "content": "What's the weather in San Francisco?"}],
    "tool_choice": "required",
    "thinking": False,
}


def test_chat_anchor_text():
    text = k3("render", "-", stdin=json.dumps(ANCHOR).encode())
    assert hashlib.sha256(text).hexdigest() == "fa05c4fc98a796f387838fdef2aef89aaa5805ca2bbb1c7101ed428f80439d14"


def test_chat_anchor_ids(published):
    ids = [int(word) for word in k3("render", "-", "--ids", "--tokenizer", published, stdin=json.dumps(ANCHOR).encode()).split()]
    assert len(ids) == 147
    digest = hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()
    assert digest == "f1ed3971af8259f3b9241d92404ec8d45f34137dec027fd96bc8d23b91b9773c"


def test_published_file_is_the_one_the_anchors_were_made_with(published):
    assert hashlib.sha256((published / "tiktoken.model").read_bytes()).hexdigest() == "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103"

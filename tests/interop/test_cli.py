"""The command line: help that teaches, refusals in one line, generate, logits and chat against the golden answers and themselves."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import load_file

ROOT_HELP = re.compile(r"^  ([a-z]+) +\S", re.MULTILINE)


def commands(k3):
    listing = k3("--help").split("Subcommands:")[1].split("Examples:")[0]
    return ROOT_HELP.findall(listing)


def test_every_help_teaches_by_example(k3):
    assert "Examples:" in k3("--help")
    names = commands(k3)
    assert {"chat", "generate", "logits", "inspect", "new", "tokenize", "render", "train"} <= set(names)
    for name in names:
        text = k3(name, "--help")
        examples = text.split("Examples:")
        assert len(examples) == 2, f"k3 {name} --help has no Examples"
        assert f"k3 {name}" in examples[1], f"the examples of k3 {name} do not show it"


def test_version_names_what_matters(k3):
    lines = dict(line.split(None, 1) for line in k3("--version").splitlines() if line)
    assert {"k3", "commit", "torch", "CUDA", "processor"} <= set(lines)
    assert lines["torch"].split("+")[0] == torch.__version__.split("+")[0]


@pytest.mark.parametrize("arguments, words", [
    (["nonsense"], ["nonsense"]),
    ([], ["--help"]),
    (["generate", "--no-such-flag"], ["generate --help"]),
    (["generate", "/nowhere", "--ids", "1"], ["/nowhere"]),
    (["generate", "GOLDEN", "--ids", ""], ["empty"]),
    (["generate", "GOLDEN", "--ids", "1,x"], ["--ids", "x"]),
    (["generate", "GOLDEN", "--ids", "1,512"], ["512", "vocabulary"]),
    (["generate", "GOLDEN", "--ids", "-1"], ["-1"]),
    (["generate", "GOLDEN", "--ids", "1", "--max-tokens", "100000000"], ["context"]),
    (["generate", "GOLDEN", "--ids", "1", "--temperature", "-1"], ["--temperature"]),
    (["generate", "GOLDEN", "--ids", "1", "--top-p", "2"], ["--top-p"]),
    (["generate", "GOLDEN", "--ids", "1", "--device", "tpu"], ["--device"]),
    (["generate", "GOLDEN", "--prompt", "hello"], ["tiktoken.model"]),
    (["logits", "GOLDEN", "--out", "x"], ["--ids"]),
    (["logits", "GOLDEN", "--ids", "1", "--out", "/nowhere/deep/x"], ["/nowhere"]),
    (["chat", "--model", "GOLDEN", "hello"], ["tiktoken.model"]),
    (["chat", "--effort", "medium", "hello"], ["effort"]),
])
def test_bad_input_is_one_line(k3, golden, tmp_path, arguments, words):
    if "/nowhere/deep/x" in arguments and os.access("/", os.W_OK):
        (tmp_path / "file").write_text("in the way")
        arguments = [str(tmp_path / "file" / "x") if a == "/nowhere/deep/x" else a for a in arguments]
        words = ["file"]
    k3.refuses(*[str(golden / "k3-tiny") if a == "GOLDEN" else a for a in arguments], words=words, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("model", ["k3-tiny", "k3-tiny-softplus", "kimi-linear-tiny"])
def test_logits_and_states_equal_the_golden_answers(k3, golden, tmp_path, model):
    expected = load_file(str(golden / model / "expected.safetensors"))
    ids = ",".join(map(str, expected["a.ids"].tolist()))
    k3("logits", golden / model, "--ids", ids, "--dtype", "float32", "--device", "cpu", "--states", "--out", tmp_path / "out.safetensors")
    got = load_file(str(tmp_path / "out.safetensors"))
    assert got["ids"].tolist() == expected["a.ids"].tolist()
    limits = {"logits": 2e-5, "hidden": 2e-5, "final_hidden": 2e-5, "kda_state": 1e-5, "kda_conv_window": 1e-5, "mla_latent": 2e-5,
              "mla_shared_key": 2e-5, "router_weights": 5e-6}
    for name, limit in limits.items():
        want = expected["a." + name]
        assert got[name].shape == want.shape, name
        error = ((got[name] - want).square().mean() / want.square().mean()).sqrt().item()
        assert error < limit, f"{name}: {error:.2e}"
    assert (got["router_experts"].sort().values == expected["a.router_experts"].sort().values).all()


def test_generate_is_greedy_and_deterministic(k3, golden):
    expected = load_file(str(golden / "k3-tiny" / "expected.safetensors"))
    ids = expected["a.ids"].tolist()
    command = ["generate", golden / "k3-tiny", "--ids", ",".join(map(str, ids)), "--max-tokens", 12, "--dtype", "float32", "--device", "cpu"]
    answer = k3.json(*command, "--json", "--logprobs", 3)
    assert answer["ids"][0] == expected["a.logits"][-1].argmax().item()
    assert k3(*command).strip() == ",".join(map(str, answer["ids"]))
    assert len(answer["ids"]) == 12 and answer["finish"] == "length"
    first = answer["logprobs"][0]
    want = torch.log_softmax(expected["a.logits"][-1], 0)
    assert first["id"] == first["top"][0]["id"]
    assert abs(first["logprob"] - want.max().item()) < 1e-4
    assert answer["stats"]["prompt_tokens"] == len(ids) and answer["stats"]["first_token_seconds"] > 0


def test_sampling_depends_on_the_seed_alone(k3, golden):
    def text(seed):
        return k3("generate", golden / "k3-tiny", "--ids", "5,6,7", "--max-tokens", 16, "--temperature", 1.5, "--seed", seed, "--device", "cpu")

    assert text(3) == text(3)
    assert text(3) != text(4)


def test_generate_prints_stats_on_standard_error(k3, golden):
    done = k3.run("generate", golden / "k3-tiny", "--ids", "1,2", "--max-tokens", 4, "--stats")
    for word in (b"prefill 2 tokens", b"decode", b"first token after", b"peak memory"):
        assert word in done.stderr


# --- with a tokenizer: a random model that writes noise, and the bundled one where it is there ----------------------------------------


@pytest.fixture(scope="module")
def talker(k3, new_model):
    """A random K3 with a small vocabulary of its own: 256 byte ranks and the control tokens above them."""
    import base64

    folder = new_model("kimi-k3", num_hidden_layers=4, hidden_size=64, intermediate_size=96, num_experts=8, num_experts_per_token=2,
                       num_shared_experts=1, moe_intermediate_size=32, routed_expert_hidden_size=32, num_attention_heads=2,
                       num_key_value_heads=2, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
                       vocab_size=512, attn_res_block_size=2, eos_token_id=258, vision_config="null",
                       **{"linear_attn_config.num_heads": 2, "linear_attn_config.head_dim": 32})
    ranks = "".join(f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256))
    (folder / "tiktoken.model").write_text(ranks)
    return folder


def test_generate_text_stops_before_the_stop_string(k3, talker):
    command = ["generate", talker, "--prompt", "Hello", "--max-tokens", 40, "--temperature", 1, "--seed", 5, "--device", "cpu", "--json"]
    whole = k3.json(*command)
    stop = whole["text"][6:9]
    cut = k3.json(*command, "--stop", stop)
    assert cut["finish"] == "stop_text"
    assert cut["text"] == whole["text"][:whole["text"].index(stop)]


def test_prompt_from_file_and_pipe(k3, talker, tmp_path):
    (tmp_path / "prompt.txt").write_text("Hello")
    base = ["generate", talker, "--max-tokens", 8, "--device", "cpu"]
    text = k3(*base, "--prompt", "Hello")
    assert k3(*base, "--file", tmp_path / "prompt.txt") == text
    assert k3(*base, input=b"Hello") == text
    k3.refuses(*base, input=b"", words=["empty"])
    k3.refuses(*base, "--file", tmp_path / "none.txt", words=["none.txt"])


def test_chat_saves_what_render_reads(k3, talker, tmp_path):
    lines = f"Hello\nAgain\n/save {tmp_path}/talk.json\n/reset\nNew\n/save {tmp_path}/new.json\n"
    k3("chat", "--model", talker, "--max-tokens", 5, "--device", "cpu", "--effort", "low", "--system", "Be brief.", input=lines.encode())
    talk = json.loads((tmp_path / "talk.json").read_text())
    assert [message["role"] for message in talk["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert talk["thinking_effort"] == "low"
    new = json.loads((tmp_path / "new.json").read_text())
    assert [message["content"] for message in new["messages"]][:2] == ["Be brief.", "New"]
    assert "thinking_effort=low" in k3("render", tmp_path / "talk.json")


def test_chat_refuses_in_one_line(k3, talker):
    base = ["chat", "--model", talker, "--device", "cpu"]
    k3.refuses(*base, "--context", 100, "hello", words=["context of 100"])
    k3.refuses(*base, input=b"/nonsense\n", words=["/nonsense", "/help"])
    k3.refuses(*base, input=b"/save\n", words=["/save"])


class Terminal:
    """A program in a pseudo terminal."""

    def __init__(self, command):
        self.process, self.main = pty.fork()
        if self.process == 0:
            os.environ["TERM"] = "xterm"
            os.execv(command[0], command)
        self.seen = ""

    def until(self, text, seconds=60):
        deadline = time.time() + seconds
        while text not in self.seen:
            assert time.time() < deadline, f"no {text!r} in {self.seen!r}"
            if select.select([self.main], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.main, 4096).decode(errors="replace")
                except OSError:
                    break
        assert text in self.seen, self.seen
        before, self.seen = self.seen.split(text, 1)
        return before

    def type(self, text):
        os.write(self.main, text.encode())

    def end(self):
        self.type("\x04")
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


def test_chat_in_a_terminal(binary, talker):
    terminal = Terminal([str(binary), "chat", "--model", str(talker), "--device", "cpu", "--max-tokens", "100000", "--context", "200000",
                         "--temperature", "1", "--seed", "1"])
    terminal.until("> ")
    terminal.type("Hello\n")
    terminal.until("\x1b[2m")  # thinking is dimmed
    terminal.type("\x03")  # Ctrl-C stops the answer, not the program
    terminal.until("stopped")
    terminal.until("> ")
    terminal.type("/help\n")
    terminal.until("/reset")
    terminal.until("> ")
    assert terminal.end() == 0


@pytest.fixture(scope="module")
def nano(binary):
    from conftest import ROOT

    folder = ROOT / "models" / "nano"
    if not (folder / "config.json").exists():
        pytest.skip("models/nano is not there")
    return folder


def test_the_bundled_model_answers(k3, nano):
    assert "42" in k3("chat", "What is 17 + 25?")
    assert "42" in k3("chat", "Tom has 17 apples and buys 25 more. How many apples does Tom have?")


def test_filesystem_is_the_compiler_s_own(binary):
    """libtorch_cpu.so exports another gcc's std::filesystem, whose remove_all crashes in a program that this gcc compiled."""
    done = subprocess.run([str(binary), "--version"], capture_output=True, text=True, timeout=60,
                          env=os.environ | {"LD_DEBUG": "bindings", "LD_BIND_NOW": "1"})
    bound = re.findall(rf"binding file {re.escape(str(binary))} \[0\] to (\S+) \[0\]: normal symbol `(_ZN\w*St10filesystem\w*)'", done.stderr)
    assert any("remove_all" in symbol for _, symbol in bound)
    assert {library for library, _ in bound if "libstdc++" not in library} <= {str(binary)}

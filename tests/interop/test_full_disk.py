"""A disk that fills up while k3 writes: one line, exit code 2, nothing left behind, what was there before intact.

A limit on the size of a file stands for the full disk: write() fails in the middle of a file, as it does there.
"""
import resource
import signal

import pytest

from conftest import ROOT


def limited(size):
    def set_limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # write() fails with EFBIG instead
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return {"preexec_fn": set_limit, "restore_signals": False}


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("arguments", [
    ["new", "--like", "kimi-linear", "--set=num_hidden_layers=4", "--set=num_experts=8", "--set=hidden_size=128", "OUT/model"],
    ["quantize", "GOLDEN", "OUT/model", "--dequantize"],
    ["logits", "GOLDEN", "--ids", ",".join(str(i % 500) for i in range(200)), "--out", "OUT/logits.safetensors"],
    ["data", "generate", "arithmetic-text", "--count", "5000", "--out", "OUT/documents.jsonl"],
])
def test_writing_fails_in_one_line_and_leaves_nothing(k3, golden, tmp_path, arguments):
    arguments = [a.replace("OUT", str(tmp_path)).replace("GOLDEN", str(golden / "k3-tiny")) for a in arguments]
    k3.refuses(*arguments, words=["writing failed", tmp_path], **limited(20_000))
    assert listing(tmp_path) == []


def test_an_existing_file_survives(k3, golden, tmp_path):
    out = tmp_path / "logits.safetensors"
    ids = ",".join(str(i % 500) for i in range(200))
    k3("logits", golden / "k3-tiny", "--ids", "1,2,3", "--out", out)
    before = out.read_bytes()
    k3.refuses("logits", golden / "k3-tiny", "--ids", ids, "--out", out, words=["writing failed"], **limited(20_000))
    assert out.read_bytes() == before and listing(tmp_path) == [out.name]


@pytest.mark.slow
def test_training_keeps_its_last_checkpoint(k3, tmp_path):
    train = ["train", ROOT / "recipes" / "tiny.toml", "--out", tmp_path / "run", "--device", "cpu", "--set", "stage.learn.tokens=200000000",
             "--max-seconds", "1"]
    k3(*train, cwd=ROOT)
    checkpoints = tmp_path / "run" / "checkpoints"
    before = {path.name: path.read_bytes() for path in (checkpoints / "latest").iterdir()}
    names = listing(checkpoints)
    done = k3.run(*train, "--resume", cwd=ROOT, **limited(20_000))
    assert done.returncode == 2 and b"writing failed" in done.stderr.splitlines()[-1], done.stderr
    assert listing(checkpoints) == names
    assert {path.name: path.read_bytes() for path in (checkpoints / "latest").iterdir()} == before
    k3(*train, "--resume", cwd=ROOT)
    assert listing(checkpoints) != names

"""What the interop tests share: the program, model folders made by it, golden data, torch.ops.k3.

The program is $K3_BINARY (./k3 test sets it), else the newest build/*/bin/k3.
"""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


# The tensors of tests are small: a second thread waits more than it computes.
os.environ["OMP_NUM_THREADS"] = "1"


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: left out by ./k3 test --fast")


@pytest.fixture(scope="session")
def binary():
    named = os.environ.get("K3_BINARY")
    built = sorted(ROOT.glob("build/*/bin/k3"), key=lambda path: path.stat().st_mtime)
    if not named and not built:
        pytest.fail("k3 is not built; run ./k3 setup")
    return pathlib.Path(named or built[-1])


class Program:
    """k3(...) runs the program, expects it to succeed and returns its standard output."""

    def __init__(self, binary):
        self.binary = binary

    def run(self, *arguments, **options):
        options = {"capture_output": True, "timeout": 300} | options
        return subprocess.run([str(self.binary), *map(str, arguments)], **options)

    def __call__(self, *arguments, **options):
        done = self.run(*arguments, **options)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def json(self, *arguments):
        return json.loads(self(*arguments))

    def refuses(self, *arguments, words=(), **options):
        """Exit code 2 and one line on standard error that has all the words."""
        done = self.run(*arguments, **options)
        message = done.stderr.decode()
        assert done.returncode == 2, (done.returncode, message, done.stdout)
        assert message.count("\n") == 1 and message.startswith("k3"), message
        for word in words:
            assert str(word) in message, message
        return message


@pytest.fixture(scope="session")
def k3(binary):
    return Program(binary)


@pytest.fixture(scope="session")
def golden():
    return ROOT / "tests" / "data" / "golden"


@pytest.fixture(scope="session")
def new_model(k3, tmp_path_factory):
    """new_model("kimi-linear", num_hidden_layers=4, ...) -> folder of a random checkpoint."""

    def make(like, seed=1, **settings):
        folder = tmp_path_factory.mktemp("models") / "model"
        k3("new", "--like", like, "--seed", seed, *[f"--set={key}={value}" for key, value in settings.items()], folder)
        return folder

    return make


@pytest.fixture(scope="session")
def ops(binary):
    """torch.ops.k3, loaded from the build that the program belongs to."""
    import torch

    library = binary.parent.parent / "libk3_torch_ops.so"
    assert library.exists(), f"{library} is not built; ninja -C {library.parent} k3_torch_ops"
    torch.ops.load_library(str(library))
    return torch.ops.k3

"""A short run of every libFuzzer target of fuzz/, built with clang; skipped where clang is not installed."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FUZZ = ROOT / "fuzz"
BUILD = pathlib.Path(os.environ.get("K3_FUZZ_BUILD", ROOT / "build" / "fuzz"))
SECONDS = int(os.environ.get("K3_FUZZ_SECONDS", "5"))
TARGETS = re.findall(r"^k3_fuzz_target\((\w+)\)", (FUZZ / "CMakeLists.txt").read_text(), re.MULTILINE)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fuzz_build():
    clang = shutil.which("clang++") or shutil.which("clang++-14")
    if clang is None:
        pytest.skip("clang is not installed; libFuzzer comes with it")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    for command in (
        ["cmake", "-S", FUZZ, "-B", BUILD, *generator, f"-DCMAKE_CXX_COMPILER={clang}"],
        ["cmake", "--build", BUILD, "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return BUILD


@pytest.mark.parametrize("target", TARGETS)
def test_short_run(fuzz_build, target, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    seeds = FUZZ / "seeds" / target
    extra = [str(seeds)] if seeds.is_dir() else []
    command = [str(fuzz_build / target), f"-max_total_time={SECONDS}", "-timeout=10", "-rss_limit_mb=3000", str(corpus), *extra]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=tmp_path, timeout=SECONDS + 120)
    assert done.returncode == 0, f"{target} failed; its input is under {tmp_path}\n{done.stderr[-4000:]}"


def test_every_target_is_listed():
    assert sorted(TARGETS) == sorted(path.stem for path in FUZZ.glob("fuzz_*.cpp"))

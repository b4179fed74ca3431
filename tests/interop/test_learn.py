"""The steps of learn/kda compile wherever nvcc is; where there is a GPU as well they also meet their limits."""
import os
import re
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.slow


def test_kda_ladder(binary):
    build = binary.parents[1]
    cache = (build / "CMakeCache.txt").read_text()
    nvcc = re.search(r"^NVCC:FILEPATH=(.+)$", cache, re.MULTILINE)
    if re.search(r"^K3_CUDA:\w+=OFF$", cache, re.MULTILINE):
        pytest.skip("this build has K3_CUDA=OFF")
    if nvcc is None or nvcc[1].endswith("NOTFOUND"):
        pytest.skip("nvcc is not there")
    jobs = str(os.cpu_count() or 1)
    command = ["cmake", "--build", str(build), "--target", "learn_kda", "--parallel", jobs]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    program = build / "learn" / "kda" / "learn_kda"
    assert program.exists()
    if shutil.which("nvidia-smi") is None or subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode != 0:
        return  # compiled; there is no GPU to run on
    done = subprocess.run([str(program), "--test"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

#!/bin/bash
# bench/gpu/check.sh LOG [RECIPE]: builds k3 with CUDA on a GPU machine, runs the operator and model tests there, the KDA kernel tests and
# benchmarks, a short training run of RECIPE and a table of the kernels that one of its steps spends its time in. Everything goes to LOG.
log=${1:?usage: bench/gpu/check.sh LOG [RECIPE]}
recipe=$2
cd "$(dirname "$0")/../.."
folder=$(dirname "$log")
exec >"$log" 2>&1
started=$SECONDS
say() { echo "== $* ($((SECONDS - started)) s)"; }
build=build/cuda
python=$(command -v python3)
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DK3_CUDA=ON -DK3_PYTHON="$python" >"$folder/configure.log" 2>&1 || tail -20 "$folder/configure.log"
say configured
timeout 280 ninja -C $build -k 0 k3 test_ops test_model >"$folder/build.log" 2>&1 || grep -E -A6 'error|FAILED:' "$folder/build.log" | cut -c1-400 | head -80
say built
export OMP_NUM_THREADS=4
timeout 90 $build/test_ops --gtest_filter='-Slow*' 2>&1 | grep -vE '^\[ +(OK|RUN) |^\[---' | head -60
say ops tests
timeout 60 $build/test_model --gtest_filter='*Golden*' 2>&1 | grep -vE '^\[ +(OK|RUN) |^\[---' | head -60
say model tests
if [ -n "$recipe" ]; then
  rm -rf runs/check
  timeout ${K3_SMOKE_SECONDS:-100} $build/bin/k3 train "$recipe" --out runs/check --device cuda --max-seconds ${K3_SMOKE_SECONDS:-80} 2>&1 | tail -40
  say trained
  if command -v ncu >/dev/null; then
    timeout 100 ncu --clock-control none --metrics gpu__time_duration.sum --csv --launch-skip ${K3_SKIP:-12000} --launch-count ${K3_COUNT:-5000} \
      $build/bin/k3 train "$recipe" --out runs/profile --device cuda --max-seconds 90 >"$folder/ncu.csv" 2>&1
    python3 bench/gpu/kernel_table.py "$folder/ncu.csv"
    rm -f "$folder/ncu.csv"
  fi
  say profiled
fi

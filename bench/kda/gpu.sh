#!/bin/bash
# bench/kda/gpu.sh LOG: builds the CUDA KDA kernels, their tests and benchmarks with nvcc for the GPU of this machine, tests, then times; all
# output goes to LOG. Every case runs in a process of its own under a time limit, so that one failure costs one line. About three minutes.
log=${1:?usage: bench/kda/gpu.sh LOG}
cd "$(dirname "$0")/../.."
out=build/kda_gpu
mkdir -p $out
exec >"$log" 2>&1
started=$SECONDS
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
[ "$capability" = 90 ] && capability=90a
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
flags="-std=c++20 -O3 -gencode=arch=compute_$capability,code=sm_$capability --expt-relaxed-constexpr -lineinfo -Isrc -Itests"

compile() {  # SOURCE OBJECT
  timeout 100 nvcc $flags -Xptxas -v -c "$1" -o "$2" >"$2.log" 2>&1 || { echo "compile failed: $1"; grep -m5 error "$2.log"; }
}
kernels=
for source in src/kernels/cuda/kda/*.cu; do
  object=$out/$(basename "$source" .cu).o
  kernels="$kernels $object"
  compile "$source" "$object" &
done
tests=
for source in tests/kernels_cuda/*.cu; do
  object=$out/$(basename "$source" .cu).o
  tests="$tests $object"
  compile "$source" "$object" &
done
compile bench/kda/kda_bench.cu $out/kda_bench.o &
wait
nvcc $flags $tests $kernels -o $out/kda_test &
nvcc $flags $out/kda_bench.o $kernels -o $out/kda_bench &
wait
grep -h "C75" $out/*.log && echo "ptxas serialised wgmma, see above"
grep -h "spill" $out/*.log | grep -v " 0 bytes spill stores" | sort | uniq -c
echo "built in $((SECONDS - started)) s"

left() { echo $((${K3_GPU_SECONDS:-200} - (SECONDS - started))); }
echo "== tests"
mkdir -p $out/results && rm -f $out/results/*
one_test() { timeout -k 5 "$3" "$1"/kda_test "$2" >"$1/results/$2.txt" 2>&1; echo $? >"$1/results/$2.code"; }
export -f one_test
$out/kda_test list | grep -v ^prefill- | xargs -P 8 -I{} bash -c "one_test $out {} 40"
$out/kda_test list | grep ^prefill- | xargs -P 2 -I{} bash -c "one_test $out {} 10"
passed=0 failed=0
for name in $($out/kda_test list); do
  code=$(cat "$out/results/$name.code" 2>/dev/null || echo missing)
  if [ "$code" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "$name: exit $code"; head -10 "$out/results/$name.txt"; fi
done
echo "tests: $passed passed, $failed failed, $((SECONDS - started)) s"
if command -v compute-sanitizer >/dev/null && [ "$(left)" -gt 80 ]; then
  for tool in memcheck racecheck; do
    for name in short-d64-bf16 step-mixed-d128-bf16 factors-mixed; do
      [ "$(left)" -gt 70 ] && echo "sanitizer $tool $name: $(timeout 25 compute-sanitizer --tool $tool $out/kda_test $name 2>&1 | grep -E "SUMMARY|Error|hazard" | tail -2 | tr '\n' ' ')"
    done
  done
fi
echo "== times"
for name in $($out/kda_bench list); do
  limit=$(left); [ "$limit" -gt 3 ] || { echo "times: out of time before $name"; break; }
  [ "$limit" -lt 30 ] || limit=30
  timeout "$limit" $out/kda_bench "$name" || echo "$name: exit $?"
done
if ls "${K3_WHEELS:-wheels}"/*.whl >/dev/null 2>&1 && [ "$(left)" -gt 40 ]; then  # the peer, when its wheels were brought along
  python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target /tmp/peer "${K3_WHEELS:-wheels}"/*.whl
  for mode in train forward; do
    limit=$(($(left) - 2))
    [ "$limit" -gt 15 ] && { PYTHONPATH=/tmp/peer timeout "$limit" python3 bench/kda/peer.py $mode 2>&1 | tail -3; }
  done
fi
nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw --format=csv,noheader
echo "done in $((SECONDS - started)) s"

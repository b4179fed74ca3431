#!/bin/bash
# bench/gpu.sh [kda] [--quick]: builds the CUDA KDA kernels, their tests and benchmarks with nvcc for the GPU of this machine, tests, then times
# them beside flash-linear-attention, and prints a table with floor, peer and goal; the same as JSON in build/bench/kda.json. About eight minutes,
# most of them the peer's tuning; --quick leaves out compute-sanitizer and the parts. The peer is timed when it imports or when its wheels lie in
# $K3_WHEELS (default: wheels): on a second GPU from the start when there is one, otherwise last. K3_PEER_SECONDS (default 330) is what its tuning may take.
# Every case runs in a process of its own under a time limit, so that one failure costs one line. Exit code 1 when a test fails.
topic=kda quick= peer=
for word in "$@"; do
  case $word in
    kda) ;;
    --quick) quick=1 ;;
    *) echo "usage: bench/gpu.sh [kda] [--quick]" >&2; exit 2 ;;
  esac
done
cd "$(dirname "$0")/.."
command -v nvidia-smi >/dev/null || { echo "bench/gpu.sh: no GPU here (nvidia-smi is missing)" >&2; exit 2; }
out=build/bench/$topic
mkdir -p $out/results && rm -f $out/results/*
started=$SECONDS
say() { echo "== $* ($((SECONDS - started)) s)"; }
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
[ "$capability" = 90 ] && capability=90a
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader | head -1
flags="-std=c++20 -O3 -gencode=arch=compute_$capability,code=sm_$capability --expt-relaxed-constexpr -lineinfo -Isrc -Itests"

if ls "${K3_WHEELS:-wheels}"/*.whl >/dev/null 2>&1; then
  python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target $out/site "${K3_WHEELS:-wheels}"/*.whl
fi
export PYTHONPATH=$PWD/$out/site
python3 -c "import fla" 2>/dev/null && peer=1 || echo "the peer does not import: pip install flash-linear-attention, or put its wheels into wheels/"
: >$out/peer.txt
time_peer() { timeout $((K3_PEER_SECONDS + 60)) python3 bench/kda/peer.py "$K3_PEER_SECONDS" >$out/peer.txt 2>$out/peer.log || tail -3 $out/peer.log; }
: "${K3_PEER_SECONDS:=330}"
apart=
if [ -n "$peer" ] && [ "$(nvidia-smi --list-gpus | wc -l)" -gt 1 ] && [ -z "$CUDA_VISIBLE_DEVICES" ]; then
  CUDA_VISIBLE_DEVICES=1 time_peer & apart=$!
  export CUDA_VISIBLE_DEVICES=0
fi

compile() {  # SOURCE OBJECT
  timeout 200 nvcc $flags -Xptxas -v -c "$1" -o "$2" >"$2.log" 2>&1 || { echo "compile failed: $1"; grep -m5 error "$2.log"; }
}
builders=() objects=
compile_all() {  # FOLDER: its sources, in the background; their objects in $objects
  objects=
  for source in "$1"/*.cu; do
    object=$out/$(basename "$source" .cu).o
    objects="$objects $object"
    compile "$source" "$object" & builders+=($!)
  done
}
compile_all src/kernels/cuda/kda && kernels=$objects
compile_all tests/kernels_cuda && tests=$objects
compile bench/kda/kda_bench.cu $out/kda_bench.o & builders+=($!)
wait "${builders[@]}"
nvcc $flags $tests $kernels -o $out/kda_test &
builders=($!)
nvcc $flags $out/kda_bench.o $kernels -o $out/kda_bench &
wait "${builders[@]}" $!
grep -h "C75" $out/*.log && echo "ptxas serialised wgmma, see above"
grep -h "spill" $out/*.log | grep -v " 0 bytes spill stores" | sort | uniq -c
say built

one_test() { timeout -k 5 60 "$1/kda_test" "$2" >"$1/results/$2.txt" 2>&1; echo $? >"$1/results/$2.code"; }
export -f one_test
$out/kda_test list | xargs -P 8 -I{} bash -c "one_test $out {}"
passed=0 failed=0
for name in $($out/kda_test list); do
  code=$(cat "$out/results/$name.code" 2>/dev/null || echo missing)
  if [ "$code" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "$name: exit $code"; head -10 "$out/results/$name.txt"; fi
done
grep -h skipped $out/results/*.txt | sort | uniq -c
say "tests: $passed passed, $failed failed"
sanitize() { timeout 60 compute-sanitizer --tool "$2" "$1/kda_test" "$3" >"$1/results/$3.$2" 2>&1; }
export -f sanitize
if [ -z "$quick" ] && command -v compute-sanitizer >/dev/null; then
  cases="layer-small layer-small-d64 short-d64-bf16 short-d64-fp32 step-mixed-d128-bf16 step-verify-d128-bf16 factors-mixed prefill-mixed prefill-split-small-packed"
  for tool in memcheck racecheck; do for name in $cases; do echo "$out $tool $name"; done; done | xargs -P 6 -L 1 bash -c 'sanitize "$@"' sanitize
  for tool in memcheck racecheck; do
    for name in $cases; do
      summary=$(grep SUMMARY "$out/results/$name.$tool")
      echo "sanitizer $tool $name: ${summary:-no summary}"
      [[ $summary == *"SUMMARY: 0 "* ]] && continue
      failed=$((failed + 1))
      grep -A 12 -m 3 -E "Error|hazard" "$out/results/$name.$tool" | head -40
    done
  done
  say sanitized
fi

: >$out/times.txt
for name in $($out/kda_bench list); do
  case $name in *-parts) [ -n "$quick" ] && continue ;; esac
  timeout 40 $out/kda_bench "$name" | tee -a $out/times.txt || echo "$name: exit $?"
done
say timed
if [ -n "$apart" ]; then wait "$apart"; elif [ -n "$peer" ]; then time_peer; fi
say "peer timed"
python3 bench/kda/table.py $out/times.txt $out/peer.txt build/bench/$topic.json
[ "$failed" = 0 ]

#!/bin/bash
# learn/kda/run.sh: builds the ladder with nvcc for the GPU of this machine, tests every step against fp64, then times.
#   --test          tests only
#   --compile-only  builds for sm_90a and stops; needs no GPU
# Exit code 1 when a step misses its limit or does not compile.
mode=
case ${1:-} in
  "" | --test | --compile-only) mode=${1:-} ;;
  *) echo "usage: learn/kda/run.sh [--test | --compile-only]" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/../.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "learn/kda/run.sh: nvcc is not there; install the CUDA toolkit" >&2; exit 2; }
capability=90
if [ "$mode" != --compile-only ]; then
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)
  [ -n "$capability" ] || { echo "learn/kda/run.sh: no GPU here; --compile-only builds without one" >&2; exit 2; }
fi
[ "$capability" = 90 ] && capability=90a
out=build/learn/kda-$capability
mkdir -p $out
flags="-std=c++20 -O3 -gencode=arch=compute_$capability,code=sm_$capability"
flags="$flags --expt-relaxed-constexpr -Isrc -Itests -Ilearn/kda"
export nvcc out flags
compile() {  # SOURCE; nothing is done when the object is newer than it and every header
  object=$out/$(basename "$1" .cu).o
  [ "$object" -nt "$1" ] &&
    [ -z "$(find src/kernels/cuda learn/kda tests/kernels_cuda -name '*.*h' -newer "$object" | grep -m1 .)" ] && return
  $nvcc $flags -c "$1" -o "$object" || { echo "compile failed: $1" >&2; rm -f "$object"; return 1; }
}
export -f compile
# Step 7 is the library's chunk form.
printf '%s\n' learn/kda/*.cu src/kernels/cuda/kda/chunk_*.cu | xargs -P "$(nproc)" -I{} bash -c 'compile {}' || exit 1
objects=
for source in learn/kda/*.cu src/kernels/cuda/kda/chunk_*.cu; do
  objects="$objects $out/$(basename "$source" .cu).o"
done
$nvcc $flags $objects -o $out/ladder || exit 1
[ "$mode" = --compile-only ] && { echo "$out/ladder"; exit 0; }
exec $out/ladder $mode

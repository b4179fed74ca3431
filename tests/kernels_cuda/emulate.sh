#!/bin/bash
# Builds the plain CUDA kernels and their tests as C++ for the emulator and runs the small cases on this machine's CPU.
# tests/kernels_cuda/emulate.sh [CASE...]; needs the CUDA headers (CUDA_HOME, default /usr/local/cuda), no GPU.
set -e
cd "$(dirname "$0")/../.."
out=build/kda_emulator
mkdir -p $out
cuda=${CUDA_HOME:-/usr/local/cuda}
objects= builders=()
for source in src/kernels/cuda/kda/*.cu tests/kernels_cuda/*.cu; do
  object=$out/$(basename $source .cu).o
  objects="$objects $object"
  [ $object -nt $source ] && [ -z "$(find src/kernels/cuda tests/kernels_cuda -name "*.*h" -newer $object)" ] || g++ -x c++ -std=c++20 -O2 -Wno-attributes -Wno-unknown-pragmas -DK3_CUDA_EMULATOR -Isrc -Itests -I$cuda/include -c $source -o $object & builders+=($!)
done
for builder in "${builders[@]}"; do wait $builder; done
g++ $objects -o $out/kda_test
$out/kda_test ${*:-all}

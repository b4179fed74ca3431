// What this processor can do, found at run time, so that one program carries every kernel and picks the fastest that is there.
#pragma once

#include <string>

namespace k3 {

struct CpuFeatures {
  bool avx2 = false;         // AVX2 with FMA
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // int8 dot products
  bool avx512_bf16 = false;  // bf16 dot products
  bool amx_int8 = false;     // tile products; the system has granted the tile registers
  bool amx_bf16 = false;
};

const CpuFeatures& cpu_features();  // asked once; also requests the tile registers from the kernel
std::string cpu_features_text();    // "avx2 avx512 avx512_bf16", or "baseline"

}  // namespace k3

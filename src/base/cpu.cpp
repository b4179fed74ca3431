#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace k3 {
namespace {

#if defined(__x86_64__)
// The kernel hands out the 8 KiB of tile registers only on request (arch_prctl, state component 18).
bool tile_registers_granted() {
  constexpr long request_permission = 0x1023, tile_data = 18;
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

CpuFeatures find_features() {
  CpuFeatures found;
  __builtin_cpu_init();
  found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  found.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  found.avx512_vnni = found.avx512 && __builtin_cpu_supports("avx512vnni");
  found.avx512_bf16 = found.avx512 && __builtin_cpu_supports("avx512bf16");
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (found.avx512 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
    const bool tiles = (edx >> 24 & 1) != 0;  // amx-tile
    if (tiles && tile_registers_granted()) {
      found.amx_bf16 = (edx >> 22 & 1) != 0;
      found.amx_int8 = (edx >> 25 & 1) != 0;
    }
  }
  return found;
}
#else
CpuFeatures find_features() { return {}; }
#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures found = find_features();
  return found;
}

std::string cpu_features_text() {
  const CpuFeatures& found = cpu_features();
  std::string text;
  const auto add = [&text](bool there, const char* name) {
    if (there) text += text.empty() ? name : std::string(" ") + name;
  };
  add(found.avx2, "avx2");
  add(found.avx512, "avx512");
  add(found.avx512_vnni, "avx512_vnni");
  add(found.avx512_bf16, "avx512_bf16");
  add(found.amx_int8, "amx_int8");
  add(found.amx_bf16, "amx_bf16");
  return text.empty() ? "baseline" : text;
}

}  // namespace k3

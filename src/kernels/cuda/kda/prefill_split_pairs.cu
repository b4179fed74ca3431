// The transfer pairs of prefill_split.h (sm_90a): one block per row, head and segment, two warpgroups with 64 columns
// of S~ and 64 of M each, the scan of prefill_scan.cuh without outputs:
//   R^T = U^T - S^T W^T;   S^T = e^(G_C) S^T + R^T Kb     S~: from zero (segment 0: from the row's state)
//   M: S = identity, U = 0; the "values" are the input keys
// over the last w chunks of the segment, or over all of it when M of the last ones has not vanished. A warp feeds the
// operands, four stages deep. Products of a chunk: 2048 clocks of the tensor core.
// A block starts while the last factors are being made. It uses the time to walk two chunks of whatever lies there:
// otherwise its instructions come from memory in the middle of the scan (5 us of 20).
// Precision: as prefill_state.cu, fp32 sums, bf16 operands. More (both bf16 halves of M and its R) changed no result:
// the rounding of S~ and of W, U and Kb is as large.
#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/kda/prefill_split_walk.cuh"

namespace k3::cuda::kda::prefill_detail {
namespace {
using namespace pairs;

// The last chunks whose product of decays falls below 2^-kForget in every channel are tried; M shrinks by the keys too.
// Decays are looked at kLook chunks at a time. kRehearsed: chunks of the rehearsal.
[[maybe_unused]] constexpr int kForget = 32, kLook = 8, kRehearsed = 2;

// After how many of the last chunks this thread's channel has forgotten; all of them: not early enough.
[[maybe_unused]] __device__ __forceinline__ int forgotten_after(const Span& span, int channel) {
  float product = 1.f;
  for (int done = 0; done < span.chunks; done += kLook) {
    float decays[kLook];
#pragma unroll
    for (int i = 0; i < kLook; ++i)
      decays[i] = done + i < span.chunks
                      ? load_relaxed(reinterpret_cast<const float*>(span.block(span.chunks - 1 - done - i) + kDecay) +
                                     channel)
                      : 1.f;
#pragma unroll
    for (int i = 0; i < kLook; ++i) {
      product *= decays[i];
      if (product < 1.f / (std::int64_t{1} << kForget)) return min(done + i + 1, span.chunks);
    }
    if (log2f(product) * static_cast<float>(span.chunks) > static_cast<float>(-kForget * (done + kLook))) break;
  }
  return span.chunks;
}

__global__ void __launch_bounds__(kThreads, 1)
    pairs_kernel(const __grid_constant__ StepArguments a, const __grid_constant__ Slab slab,
                 const __grid_constant__ Split split) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const int head = blockIdx.x, row = blockIdx.y, segment = blockIdx.z, half = threadIdx.x / 128;
  const int chunks = split.segment_chunks, first = segment * chunks;
  const bool asked_for = first + chunks < share_of(a, slab, row).chunks;  // not the last segment of a row
  const PairMemory at{panel_base(), panel_bytes()};
  const Span span{slab.block(row * a.heads + head, first), chunks};
  if (threadIdx.x == 0) at.init();
  constexpr std::int64_t kState = kDim * kDim;
  const std::int64_t pair = split.place(row, segment, a.heads, head);
  float* entry = split.entries + pair * kState;  // S_in of this segment; S~ goes to the next one's
  float* next = entry + a.heads * kState;
  const float* state =
      asked_for ? a.state + (static_cast<std::int64_t>(a.slots[row]) * a.heads + head) * kState : nullptr;
  const auto window = [&] {
    const int* windows = at.windows();
    return max(max(windows[0], windows[1]), max(windows[2], windows[3]));
  };
  int n = 0, look = 0;
  if (threadIdx.x >= 32 * kWarps) {
    registers_down<kFeedRegisters>();
    __syncthreads();
    await_previous_kernel();
    release_next_kernel();
    if (!asked_for) return;
    __syncthreads();
    if (threadIdx.x != 32 * kWarps) return;
    for (int turn = window() < chunks ? 0 : 1; turn < 2; ++turn) {
      const int count = turn == 0 ? window() : chunks;
      feed(at, span, n, count), n += count;
      if (turn == 0 && all_below(at, look++)) break;
    }
    return;
  }
  registers_up<kWalkRegisters>();
  if (segment == 0 && asked_for)  // where the state kernel looks for it; `state` receives the row's end meanwhile
    for (int i = threadIdx.x; i < kState / 4; i += 32 * kWarps)
      reinterpret_cast<float4*>(entry)[i] = reinterpret_cast<const float4*>(state)[i];
  // Pass 0: whoever waits for the factors goes through the instructions once, so that they are at hand afterwards.
  float S[64], M[64];
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    if (pass == 1) {
      await_previous_kernel();
      release_next_kernel();
      if (!asked_for) return;
    }
    if (threadIdx.x < kDim && asked_for) {
      float after = static_cast<float>(forgotten_after(span, threadIdx.x));
#pragma unroll
      for (int step = 16; step >= 1; step /= 2) after = fmaxf(after, shuffle_xor(after, step));
      if (threadIdx.x % 32 == 0) at.windows()[threadIdx.x / 32] = static_cast<int>(after);
    }
    __syncthreads();
    // Turn 0: the window; turn 1, when there is none or M has not vanished: all chunks, and M of the first segment is
    // not asked for.
    for (int turn = pass == 0 || window() < chunks ? 0 : 1; turn < 2; ++turn) {
      const bool asked = turn == 0 || segment > 0;
      if (!asked) each_state_element(64 * half, [&](int i, int key, int value) { S[i] = state[key * kDim + value]; });
      const int count = pass == 0 ? kRehearsed : turn == 0 ? window() : chunks;
      walk(S, M, at, n, count, asked, asked, pass == 1);
      if (pass == 0) break;
      n += count;
      const bool vanished = asked && all_below(M, at, look++);
      if (threadIdx.x == 0) split.vanished[pair] = vanished;
      if (turn == 0 && !vanished) continue;
      if (vanished || !asked) {
        each_state_element(64 * half, [&](int i, int key, int value) { next[key * kDim + value] = S[i]; });
        break;
      }
      unsigned char* to = split.transfers + pair * kTransferBytes;
      float4* sums = reinterpret_cast<float4*>(to + 8 * kPanel) + half * 16 * 128 + threadIdx.x % 128;
#pragma unroll
      for (int i = 0; i < 16; ++i) sums[i * 128] = make_float4(S[4 * i], S[4 * i + 1], S[4 * i + 2], S[4 * i + 3]);
      each_state_element(64 * half, [&](int i, int key, int value) {
        if (i % 2 != 0) return;
        unsigned char* word = to + (half * 2 + key / 64) * kPanel + panel_offset(value % 64, key % 64 * 2);
        const SplitPair terms(M[i], M[i + 1]);
        *reinterpret_cast<uint32_t*>(word) = terms.high;
        *reinterpret_cast<uint32_t*>(word + 4 * kPanel) = terms.low;
      });
    }
  }
#endif  // elsewhere prefill_supported() is false and nobody launches it
}

}  // namespace

cudaError_t launch_pairs(const StepArguments& a, const Slab& slab, const Split& split, cudaStream_t stream) {
  return launch_chained(pairs_kernel, dim3(a.heads, a.rows, split.segments - 1), kThreads, PairMemory::kBytes, stream,
                        a, slab, split);
}

}  // namespace k3::cuda::kda::prefill_detail

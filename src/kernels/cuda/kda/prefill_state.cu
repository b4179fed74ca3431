// The state kernel of prefill.h (sm_90a). A block walks a line (a row and head) or a segment of it (prefill_split.h),
// chunk by chunk; beside the factor kernel, an interval of many lines (prefill_shares.cuh). Its warps:
//   two warpgroups of the state, 64 value columns each (prefill_scan.cuh). A chunk:
//           W product -> R | in its shadow O of the chunk before and the sums of its squares leave for shared memory |
//           Qd product -> O | in its shadow R^T is packed and S decayed
//           A product -> O, Kb product -> S | in their shadow the next U^T is loaded; then the new S is packed
//         The two hide each other's latencies. Nothing is in flight across the loop's edge, where ptxas would serialise
//         every product.
//   a warp that feeds the operands, and seven that make the output (prefill_outputs.cuh)
// With few heads two multiprocessors share a state block. Each of these two ranks, a cluster, has 64 value columns, one
// warpgroup and all the operands but half of U; the norm needs the squares of both. The one warpgroup is no quicker
// when it does other work in the shadow of its products (docs/tried.md): O leaves behind them. A chunk takes 1.15 us
// instead of 1.76, on two multiprocessors.
// Products of a chunk and warpgroup: 896 clocks of the tensor core. A chunk takes 2250 clocks without its output and
// 3150 with it: the warps get in each other's way.
// Bytes a token and head: 1160 + 512.
#include <algorithm>

#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/kda/prefill_outputs.cuh"

namespace k3::cuda::kda::prefill_detail {
namespace {

// Of a thread, of the 65536 of a block: with 184 ptxas serialises the products of the state.
template <int kRanks>
struct Registers {
  using Memory = StateMemory<kRanks>;
  static constexpr int kState = kRanks == 1 ? 192 : 232, kOthers = Memory::kThreads - Memory::kStateThreads,
                       kAll = 65536 / Memory::kThreads / 8 * 8 * Memory::kThreads,
                       kOutput = (kAll - Memory::kStateThreads * kState) / kOthers / 8 * 8;
};

// O^T squared and summed over this warp's 16 value columns. In halves of 32 tokens: eight lanes hold parts of the same
// eight tokens and exchange until each has the sum of one.
[[maybe_unused]] __device__ __forceinline__ void sum_squares(float (&squares)[2], const float (&o)[32]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sums[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float* x = o + 16 * half + i / 2 * 4 + i % 2;
      sums[i] = fmaf(x[0], x[0], x[2] * x[2]);
    }
#pragma unroll
    for (int width = 4; width >= 1; width /= 2) fold_lanes(sums, width, lane, 4 * width);
    squares[half] = sums[0];
  }
}
// Where the lane's first one goes, in bytes.
[[maybe_unused]] __device__ __forceinline__ uint32_t own_square() {
  const int lane = threadIdx.x % 32;
  return static_cast<uint32_t>(exchanged(lane / 8 * 8 + lane % 4 * 2 + lane / 4 % 2)) * 4;
}

// One line: entry is the state before, exit where the state behind goes, or null, both [key][value]; n is the number of
// its first chunk.
// With two ranks each needs the other's sums of squares. They go to the other's place of chunk n once this rank's own
// output of chunk n - kOutputs has been read; for that the other had sent its squares of that chunk, when its output of
// chunk n - 2 kOutputs, the last one of that place, had been read.
template <int kRanks>
__device__ __forceinline__ void run_line(const StateMemory<kRanks>& at, const Slab& slab, const Peer& peer,
                                         const float* entry, float* exit, int n, int chunks) {
  using Memory = StateMemory<kRanks>;
  const int group = threadIdx.x / 128, panel = group + at.rank();  // of 64 values
  float S[64], o[32], r[32];
  uint32_t left[32], r_bits[16];
  each_state_element(64 * panel, [&](int i, int key, int value) { S[i] = entry[key * kDim + value]; });
  const uint32_t own_output = transposed_address(group * kPanel, 0) ^ threadIdx.x % 32 / 16 * kExchange;
  const uint32_t own_squares = (4 * panel + threadIdx.x / 32 % 4) * Memory::kSquarePitch + own_square();
  const auto put_output = [&](int n) {  // O^T to shared memory, token-major, in order; the sums of its squares
    barrier_wait(at.output_read(n), at.output_filled(n) ^ 1);
    const uint32_t first = at.output(n) + own_output;
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
      const float* x = o + 8 * tile;
      store_transposed((first ^ tile % 2 * 2 * kExchange) + tile * 16 * 128, bf16_pair(x[0], x[1]),
                       bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]), bf16_pair(x[6], x[7]));
    }
    float squares[2];
    sum_squares(squares, o);
    const uint32_t to = at.squares(n) + own_squares;
#pragma unroll
    for (int half = 0; half < 2; ++half) store_shared(to + 128 * half, bits_of(squares[half]));
    if constexpr (kRanks == 1) {
      barrier_arrive(at.output_full(n));
    } else {  // first the arrival: what the other does when it has all squares belongs to later phases
      if (threadIdx.x == 0) barrier_arrive_expect(at.output_full(n), kChunk * Memory::kValues / 16 * 4);
      else barrier_arrive(at.output_full(n));
#pragma unroll
      for (int half = 0; half < 2; ++half) peer.store(to + 128 * half, squares[half], at.output_full(n));
    }
  };
  const int begin = n, end = n + chunks;
  barrier_wait(at.early_full(n), at.filled(n));
  load_values(r, at.block(n) + kWeightedValues + panel * kPanel);
  for (; n < end; ++n) {
    const uint32_t block = at.block(n);
    pack(left, S);
    wgmma_fence();
    project<1, -1>(r, left, block + kWeightedKeys);
    wgmma_commit();
    if constexpr (kRanks == 1) {
      wgmma_wait<1>();  // costs nothing; without it ptxas waits for the product before o is touched
      if (n > begin) put_output(n - 1);
    }
    barrier_wait(at.rest_full(n), at.filled(n));
    if (slab.beside() && threadIdx.x == 0 && at.rank() == 0) atomicAdd(slab.used(), 1u);
    wgmma_fence();
    project<0, 1>(o, left, block + kDecayedQueries);
    wgmma_commit();
    wgmma_wait<1>();
    settle(r);
    barrier_arrive(at.early_empty(n));
    pack(r_bits, r);
    decay_state(S, block + kDecay);
    wgmma_fence();
    attend(o, r_bits, block + kScores);
    restore(S, r_bits, block + kRestoredKeys);
    wgmma_commit();
    const bool more = n + 1 < end;
    if (more) barrier_wait(at.early_full(n + 1), at.filled(n + 1));
    // Behind the last chunk of something that lies still; never used. Without it ptxas serialises the products.
    load_values(r, (more ? at.block(n + 1) + kWeightedValues : block + kRestoredKeys) + panel * kPanel);
    wgmma_wait<0>();
    settle(S);
    settle(o);
    barrier_arrive(at.rest_empty(n));
    if constexpr (kRanks == 2) put_output(n);
  }
  if constexpr (kRanks == 1) put_output(end - 1);
  if (exit)
    each_state_element(64 * panel, [&](int i, int key, int value) { exit[key * kDim + value] = S[i]; });
}

// The three last raw values of every channel, once the whole row has been read by the factor kernel; by the warpgroups
// of the state.
template <int kThreads>
__device__ __forceinline__ void write_window(const StepArguments& a, int row, int head) {
  const std::int64_t width = static_cast<std::int64_t>(a.heads) * kDim, first = a.starts[row],
                     tokens = a.starts[row + 1] - first;
  auto* window = static_cast<__nv_bfloat16*>(a.window) + static_cast<std::int64_t>(a.slots[row]) * 9 * width +
                 static_cast<std::int64_t>(head) * kDim;
  for (int i = threadIdx.x; i < 3 * kDim; i += kThreads) {
    const int which = i / kDim, channel = i % kDim;
    const Rows& raw = which == 0 ? a.q : which == 1 ? a.k : a.v;
    __nv_bfloat16 values[3];
    for (int tap = 0; tap < 3; ++tap) {
      const std::int64_t token = tokens - 3 + tap;
      values[tap] = token >= 0
                        ? static_cast<const __nv_bfloat16*>(
                              raw.data)[(first + token) * raw.token_stride + head * raw.head_stride + channel]
                        : window[((tokens + tap) * 3 + which) * width + channel];
    }
    for (int tap = 0; tap < 3; ++tap) window[(tap * 3 + which) * width + channel] = values[tap];
  }
}

template <int kRanks>
__global__ void __launch_bounds__(StateMemory<kRanks>::kThreads, 1)
    state_kernel(const __grid_constant__ StepArguments a, const __grid_constant__ Slab slab,
                 const __grid_constant__ Split split) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Memory = StateMemory<kRanks>;
  if (!slab.beside()) await_previous_kernel();
  release_next_kernel();
  const Memory at{panel_base()};
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x) / kRanks;
    Interval interval{};
    if (slab.beside()) {
      Shares& shares = *reinterpret_cast<Shares*>(panel_bytes() + Memory::kSharesAt);
      share_chunks(shares, a, slab, lane);
      interval.chunks = shares.end(block) - shares.begin(block);
      if (interval.chunks > 0) {
        const LineChunk last = find_step(shares, a, slab, shares.end(block), 1, 0, lane);
        interval.line = last.line, interval.chunk = last.chunk;
      }
    }
    if (lane == 0) {
      *reinterpret_cast<Interval*>(panel_bytes() + Memory::kIntervalAt) = interval;
      at.init();
    }
    __syncwarp();
  }
  if constexpr (kRanks == 2) await_cluster();
  else __syncthreads();
  if (threadIdx.x >= Memory::kStateThreads) {
    registers_down<Registers<kRanks>::kOutput>();
    if (threadIdx.x >= Memory::kStateThreads + 32) finish_outputs(a, slab, split, at);
    else feed_blocks(a, slab, split, at);
  } else {
    registers_up<Registers<kRanks>::kState>();
    const Peer peer(at.base);  // used with two ranks
    int n = 0;
    each_line<kRanks>(a, slab, split, [&](const Line& line) {
      float* state = a.state + (static_cast<std::int64_t>(a.slots[line.row]) * a.heads + line.head) * kDim * kDim;
      const std::int64_t entry = split.place(line.row, line.segment, a.heads, line.head);
      if (line.takes)
        while (load_acquire(slab.handed(static_cast<int>(blockIdx.x) - kRanks)) < Memory::kStateThreads)
          sleep_nanoseconds(100);
      run_line(at, slab, peer, line.split ? split.entries + entry * kDim * kDim : state,
               line.last || line.hands ? state : nullptr, n, line.chunks);
      if (line.hands) add_release(slab.handed(static_cast<int>(blockIdx.x)), 1);
      if (line.ends && at.rank() == 0) write_window<Memory::kStateThreads>(a, line.row, line.head);
      n += line.chunks;
    });
  }
  if (slab.beside()) await_previous_kernel();  // "ended" stays transitive along the stream
  if constexpr (kRanks == 2) await_cluster();  // the other writes to this one's shared memory
#endif  // elsewhere prefill_supported() is false and nobody launches it
}

}  // namespace

cudaError_t launch_state(const StepArguments& a, const Slab& slab, const Split& split, cudaStream_t stream) {
  const int lines = slab.lines * split.segments;
  if (slab.beside() && (split.segments > 1 || !slab.ready)) return cudaErrorInvalidValue;
  const auto launch_ranks = [&](auto ranks, auto kernel) {
    const int blocks = slab.beside() ? slab.state_blocks * ranks : lines;
    return launch_chained<ranks>(kernel, dim3(blocks), StateMemory<ranks>::kThreads, StateMemory<ranks>::kBytes, stream,
                                 a, slab, split);
  };
  if (slab.ranks == 1) return launch_ranks(std::integral_constant<int, 1>(), state_kernel<1>);
  if (slab.ranks == 2 && slab.beside()) return launch_ranks(std::integral_constant<int, 2>(), state_kernel<2>);
  return cudaErrorInvalidValue;
}

}  // namespace k3::cuda::kda::prefill_detail

// The factor kernel of prefill.h: everything of a chunk of 64 tokens that does not depend on the state, from the raw
// projections. Blocks of eight warps, two a multiprocessor, walk over the chunks in the order of find_work(); per chunk
//   1 convolution, SiLU, sums of squares, gates                            a warp: 16 channels
//   2 operands relative to the middle of 32 tokens                         (prefill_factors_channels.cuh)
//   3 A and M; T_II = (I + L_II)^-1 of the four diagonal tiles of 16 tokens     L = diag(beta) M; Kb and Qd leave
//   4 W and U by block substitution, X_I = T_II diag(beta_I) (B_I - sum_J M_IJ X_J)    (prefill_factors_tiles.cuh)
// In step 1 the next chunk is looked for, no earlier: the state waits for the oldest number taken and not ready yet.
// In step 2 the L2 is asked for its raw rows and in step 3, under the inverses, the copy engine sent for them; raw v
// follows when W of the chunk before has left its place. All of a block of operands leaves by bulk copies.
// Beside the state kernel the blocks leave whole multiprocessors to it. The flag of a block of operands (Slab::ready)
// is set behind its writes, in step 1 of the chunk after it, and the L2 is for the operands: it is not asked for raw
// rows, and those that come give way first.
// Substitution sees the rounded X_J, so that the error of a rounding is corrected by the tokens behind it; M keeps the
// rest of its rounding in a second bf16 number.
// Floors of a chunk and head: 138 KB of memory traffic, 4.3 us of a multiprocessor's share of 4.2 TB/s (0.41 ms at
// T 8192 H 96); 7 special functions a channel and token, 3700 clocks; 2560 instructions a warp (as the profiler counts
// them), 5100 clocks; 5300 clocks of shared memory, a sixth of them the convolutions' rows.
// What one lane does alone in front of a barrier is short, or the whole warp does it: racecheck takes a warp that comes
// to a barrier in pieces for one that did not wait.
#include <algorithm>
#include <limits>

#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/kda/prefill_factors_channels.cuh"
#include "kernels/cuda/kda/prefill_factors_tiles.cuh"

namespace k3::cuda::kda::prefill_detail {
namespace {
using namespace factors;

// First threads of warps. The finder's warp looks for work; the sender issues the copies of Kb and Qd, the issuer those
// of the rest. When they have ended, the signaller sets the block's flag: it has sent for nothing, and a release waits
// for what its thread has sent for, too (raw v, by the issuer).
inline constexpr int kIssuer = 160, kSignaller = 224;

// Beside the state kernel the second block of a multiprocessor begins later, so that the first chunks, for which the
// state waits, have a multiprocessor for themselves; nanoseconds.
inline constexpr unsigned kHeadStart = 5000;

// Two blocks come to every multiprocessor. Beside the state kernel those on the multiprocessors that are meant for it
// end at once: the first ones, for their numbers go round the clusters of multiprocessors, which share a way to the L2.
// Only two for each (Slab::left): beside other kernels more may come there, while the other multiprocessors are taken.
__device__ __forceinline__ bool leaves_to_state(const Slab& slab) {
  if (!slab.beside()) return false;
  auto* leaves = reinterpret_cast<uint32_t*>(own_shared() + kBeta);
  const unsigned states = slab.state_blocks * slab.ranks;
  if (own_thread() == 0)
    *leaves = blockIdx.x > 0 && multiprocessor() < states && atomicAdd(slab.left(), 1u) < 2 * states;
  await_block();
  return *leaves != 0;
}

// Holds the issuer until the state is near enough (Slab::used), given what was read of it before. Only for speed: where
// the state kernel is not allowed to start before this one has ended, patience runs out, once a block.
__device__ __forceinline__ void await_state(const Slab& slab, int number, uint32_t used, int& patience) {
  while (number >= static_cast<int>(used) + slab.ahead() && patience > 0)
    sleep_nanoseconds(100), used = load_relaxed(slab.used()), --patience;
  if (patience > 0) patience = kPatience;
}

__global__ void __launch_bounds__(kThreads, 2)
    factors_kernel(const __grid_constant__ StepArguments a, const __grid_constant__ Slab slab,
                   const __grid_constant__ InputMaps maps) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  assume(threadIdx.x < kThreads);
  if (leaves_to_state(slab)) return;
  release_next_kernel();
  if (slab.beside() && blockIdx.x >= gridDim.x / 2) wait_nanoseconds(kHeadStart);
  const auto works = [](unsigned i) -> Work& { return reinterpret_cast<Work*>(own_shared() + kWorks)[i]; };
  const auto start_boxes = [&](const Work& w) {
    if (in_boxes(w.path))
      fetch_boxes(shared_address(own_shared()), a, maps, w, slab.beside(), own_thread());
    __syncwarp();
  };
  const auto start_rows = [&](const Work& w) {
    if (w.path == kByRows) fetch(own_shared(), a, w, own_thread());
  };
  // The block's writes have ended (bulk_wait_written: those of the issuer, and before await_end() those of the sender).
  // Without the release others may see the flag and not yet all of the block.
  const auto signal = [&](const Work& w) {
    if (w.count > 0) store_release(slab.ready + w.block, 1);
  };
  Shares& shares = *reinterpret_cast<Shares*>(own_shared() + kShares);
  const auto claim_one = [&] { return own_thread() % 32 == 0 ? claim(slab) : 0; };  // by a warp, as find
  const auto find = [&](Work& to, const Work& last, uint32_t claimed) {
    find_work(to, last, next_number(last, claimed, slab), a, slab, shares);
  };
  if (own_thread() < 32) {
    const uint32_t claimed = claim_one();  // on its way while the rows are looked up
    if (own_thread() == 0) {
      const uint32_t address = shared_address(own_shared());
      Work& start = works(kRing - 1);
      start.number = static_cast<int>(blockIdx.x) - static_cast<int>(gridDim.x);
      start.walk = start.row = -1, start.walk_end = 0, start.count = 1;
      *reinterpret_cast<int*>(own_shared() + kPatienceAt) = kPatience;
      barrier_init(address + kArrived, 1);
      barrier_init(address + kValuesArrived, 1);
      barrier_init(address + kSquared, kThreads);
      barrier_init(address + kOperandsRead, kThreads);
      barrier_init(address + kScored, kThreads);
      barrier_init(address + kWritten, 1);
      barrier_init_fence();
    }
    if (slab.beside()) share_chunks(shares, a, slab, static_cast<int>(own_thread()));
    else if (own_thread() == 0) shares.heads = Divisor(a.heads);
    __syncwarp();
    find(works(0), works(kRing - 1), claimed);
    if (own_thread() == 0) works(kRing - 1).count = 0;
  }
  // The last threads make beta, of a token each. Its logit comes a chunk ahead: it takes as long as a convolution.
  __nv_bfloat16 logit{};
  const auto own_token = [] { return static_cast<int>(own_thread()) - (kThreads - kChunk); };
  const auto load_logit = [&](const Work& w) {
    if (const int token = own_token(); token >= 0 && token < w.count)
      logit = static_cast<const __nv_bfloat16*>(
          a.b.data)[(static_cast<std::int64_t>(w.token) + token) * a.b.token_stride + w.head * a.b.head_stride];
  };
  await_block();
  start_boxes(works(0)), start_rows(works(0));
  load_logit(works(0));
  unsigned turn = 0;
  const auto before = [&]() -> const Work& { return works((turn + kRing - 1) % kRing); };
  for (; works(turn).count > 0; turn = (turn + 1) % kRing) {
    const auto work = [&]() -> const Work& { return works(turn); };
    const auto next = [&]() -> Work& { return works((turn + 1) % kRing); };
    const int path = work().path;
    const unsigned parity = turn % 2;  // of the phases of this chunk
    unsigned char* shared = own_shared();
    barrier_wait(shared_address(shared) + kArrived, parity);
    if (path != kBoxes) {
      if (path == kByRows) {
        copy_async_wait<0>();
      } else {
        patch_window(shared + kRawQ, a, work(), 0, own_thread());
        patch_window(shared + kRawK, a, work(), 1, own_thread());
      }
      await_block();
    }

    // ---- 1
    const unsigned thread = own_thread();
    const float speed_logit = a.a_log[work().head];
    const unsigned char* taps = shared + kTapsAt;
    TileWords q[kTiles], k[kTiles];
    GateSums gates;
    float squares[4] = {};
    const auto keep = [](TileWords* to, int piece, const TilePair& x) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i / 2][piece][i % 2] = x[i / 2][i % 2];
    };
    uint32_t used = 0;
    if (thread == kIssuer && slab.beside()) used = load_relaxed(slab.used());
    const Place at(thread);
    convolve(at, taps, shared_address(shared) + kRawQ, [&](int piece, int pair, const TilePair& x) {
      keep(q + 2 * pair, piece, x);
      for (int tile = 2 * pair; piece == 1 && tile < 2 * pair + 2; ++tile) add_squares<false>(squares, tile, q[tile]);
    });
    if (thread / 32 == kIssuer / 32) {
      bulk_wait_read<0>();  // W, U and A of the chunk before
      if (thread == kIssuer && in_boxes(path))
        fetch_values(shared_address(shared), maps, work(), slab.beside());
      __syncwarp();
    }
    if (thread / 32 == kFinder / 32) find(next(), work(), claim_one());
    if (const int token = own_token(); token >= 0)
      reinterpret_cast<float*>(shared + kBeta)[token] = token < work().count ? fast_sigmoid(load1(&logit)) : 0.f;
    convolve<kRawK - kRawQ>(at, taps + kDim * kTaps * 4, shared_address(shared) + kRawQ,
                            [&](int piece, int pair, const TilePair& x) {
      keep(k + 2 * pair, piece, x);
      for (int tile = 2 * pair; piece == 1 && tile < 2 * pair + 2; ++tile) add_squares<true>(squares, tile, k[tile]);
    });
    if (slab.beside()) {
      if (thread / 32 == kIssuer / 32) {
        bulk_wait_written();
        if (thread == kIssuer) {
          barrier_arrive(shared_address(shared) + kWritten);
          await_state(slab, work().number, used, *reinterpret_cast<int*>(shared + kPatienceAt));
        }
      } else if (thread == kSignaller) {
        barrier_wait(shared_address(shared) + kWritten, parity);
        signal(before());
      }
      __syncwarp();
    }
    sum_gates(gates, shared_address(shared) + kRawZ, reinterpret_cast<const float*>(shared + kBias),
              fast_exp(speed_logit), a.lower_bound, work().count);
    if (path == kByRows) {
      await_block();
      if (own_thread() == 0) barrier_arrive(shared_address(shared) + kValuesArrived);  // its phases count the chunks
      fetch_rows(shared + kRawV, a, work(), a.v, 2, own_thread());
      copy_async_commit();
      copy_async_wait<0>();
    }
    barrier_wait(shared_address(shared) + kValuesArrived, parity);  // also: every warp is through step 4
    {
      float2* to = reinterpret_cast<float2*>(shared + kSquares) + at.warp * kSquaresPitch +
                   at.lane % 4 * kSquaresTile + at.row;
      to[0] = make_float2(squares[0], squares[1]), to[8] = make_float2(squares[2], squares[3]);
    }
    if (path != kBoxes) {
      if (path == kFirstBoxes) patch_window(shared + kRawV, a, work(), 2, own_thread());
      await_block();
    }
    barrier_arrive(shared_address(own_shared()) + kSquared);
    put_tile_decays(gates);
    {
      const Place at(own_thread());
      const uint32_t values = shared_address(own_shared()) + at.pairs();
      convolve(at, own_shared() + kTapsAt + 2 * kDim * kTaps * 4, shared_address(own_shared()) + kRawV,
               [&](int piece, int pair, const TilePair& x) {
                 store_tile((values ^ 16 * piece ^ 2 * pair * kExchange) + kValues, x);
               });
    }
    barrier_wait(shared_address(own_shared()) + kSquared, parity);
    put_lengths(work().count);
    await_block();
    if (!slab.beside()) announce(maps, next(), own_thread());  // the L2 is for the blocks then
    __syncwarp();

    // ---- 2
    put_operands(q, k, gates);
    async_proxy_fence();
    await_operands();

    // ---- 3
    unsigned char* operands = own_shared();
    const uint32_t address = shared_address(operands);
    if (own_thread() == kSender) {
      unsigned char* block = slab.block(work().block);
      bulk_copy_out(block + kRestoredKeys, address + kRestoredOut, 2 * kPanel);
      bulk_commit();
      bulk_copy_out(block + kDecayedQueries, address + kQueriesOut, 2 * kPanel);
      bulk_commit();
    }
    __syncwarp();
    if (const int warp = static_cast<int>(own_thread() / 32); warp < kWarps / 2) {
      multiply_half<0>(operands, address, parity);
      if (warp < 2) await_pair(warp), invert_diagonals(operands, warp);
      if (warp == kSender / 32) bulk_wait_read<0>();  // Qd
    } else {
      multiply_half<1>(operands, address, parity);
      put_decay();
    }
    start_boxes(next());
    await_scores(address, parity);

    // ---- 4
    start_rows(next());
    load_logit(next());
    __syncwarp();
    substitute(operands, address, static_cast<int>(own_thread() / 32));
    async_proxy_fence();
    if (const unsigned thread = own_thread(); thread / 32 != kIssuer / 32) {
      if (thread / 32 == kSender / 32) bulk_wait_written();  // Kb and Qd
      arrive_at_end();
    } else {
      unsigned char* block = slab.block(work().block);
      await_end();
      if (thread == kIssuer) {
        bulk_copy_out(block + kWeightedKeys, address + kRowsK, kBlockBytes - kWeightedKeys);
        bulk_commit();
        if (slab.beside() && before().count == 0)  // the state is waiting for its first blocks
          bulk_wait_written(), signal(work());
      }
    }
  }
  if (own_thread() == kIssuer) {
    bulk_wait_written();
    if (slab.beside()) signal(before());
  }
#endif  // elsewhere prefill_supported() is false and nobody launches it
}

// 16-byte copies of q, k, v, z, window, taps and bias; offsets inside a chunk in 32 bits; blocks at multiples of 128.
bool reachable(const StepArguments& a, const Slab& slab) {
  const auto at = [](const void* p, int bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; };
  const auto rows = [&](const Rows& raw, int elements) {
    return at(raw.data, 2 * elements) && raw.token_stride % elements == 0 && raw.head_stride % elements == 0 &&
           raw.token_stride > 0 && raw.token_stride < 1 << 24;
  };
  return rows(a.q, 8) && rows(a.k, 8) && rows(a.z, 8) && rows(a.v, 8) && rows(a.b, 1) && at(a.window, 16) &&
         at(a.taps, 16) && at(a.dt_bias, 16) && at(slab.blocks, 128);
}

}  // namespace

cudaError_t launch_factors(const StepArguments& a, const Slab& slab, cudaStream_t stream) {
  const std::int64_t works = static_cast<std::int64_t>(slab.lines) * slab.chunks;
  if (!reachable(a, slab) || (slab.beside() && !(slab.claimed && slab.ready)) ||
      works > std::numeric_limits<int>::max() / 2)
    return cudaErrorInvalidValue;
  InputMaps maps;
  const auto map = [&](HeadMap& to, const Rows& raw, int groups) {
    return make_head_map(to, raw.data, 2 * raw.token_stride, 2 * raw.head_stride, a.heads, groups);
  };
  for (const cudaError_t error : {map(maps.q, a.q, kRawPitch), map(maps.k, a.k, kRawPitch), map(maps.v, a.v, kRawPitch),
                                  map(maps.z, a.z, kGroups)})
    if (error != cudaSuccess) return error;
  const std::int64_t most = 2 * std::max(1, multiprocessors()),
                     blocks = slab.beside() ? most : std::min(works, most);
  return launch(factors_kernel, dim3(static_cast<unsigned>(blocks)), kThreads, kSharedBytes, stream, a, slab, maps);
}

}  // namespace k3::cuda::kda::prefill_detail

// CUDA blocks on a CPU, for tests only: every thread of a block is a fiber, blocks run one after another, but for the
// two of a cluster, which take turns. Meant to find errors, not to be quick: shared memory starts as NaN, fibers run in
// ascending or descending order, and asynchronous copies land either at once or only when waited for. Gives the names
// of kernels/cuda/common/device.cuh their meaning when K3_CUDA_EMULATOR is defined.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#ifndef __grid_constant__
#define __grid_constant__
#endif
#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif

namespace k3::cuda::emulator {

struct Options {
  bool descending = false;   // order of the fibers
  bool late_copies = false;  // asynchronous copies land at the wait instead of at once
};
inline Options options;

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes = 16;
};
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
  int block_generation = 0, warp_generation = 0, group_generation = 0,  // barriers passed
      cluster_generation = 0;
  std::vector<std::vector<Copy>> groups;                                // committed, not yet landed
  std::vector<Copy> open, bulk;                                         // of the group that is not committed
  std::vector<std::vector<Copy>> bulk_groups;                           // bulk copies out, committed, not yet landed
};
struct Warp {
  int arrived = 0, generation = 0, lanes = 32;
  uint32_t slots[2][32][8];
};
struct Group {  // four warps
  int arrived = 0, generation = 0;
  uint32_t slots[2][128][4];
};
struct Barrier {  // mbarrier
  int expected = 0, pending = 0, phase = 0;
  std::int64_t bytes = 0;
  void settle() {
    if (pending > 0 || bytes != 0) return;
    ++phase;
    pending = expected;
  }
};
struct Named {  // barrier of some threads
  int arrived = 0, generation = 0;
};
struct Block {
  std::map<int, Named> named;
  std::vector<Group> groups;
  std::map<uint32_t, Barrier> barriers;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  int arrived = 0, generation = 0, current = 0;
  std::vector<unsigned char> shared;
  ucontext_t scheduler;
  std::function<void()> body;
  dim3 index;
  Block* peer = nullptr;    // the other one of a cluster of two
  int cluster_arrived = 0;  // at all barriers of both so far
};
inline Block* block = nullptr;
inline dim3 block_index, grid_size, block_size;
struct ThreadIndex {
  struct X {
    operator unsigned() const { return static_cast<unsigned>(block->current); }
  } x;
};
inline ThreadIndex thread_index;

inline void yield() { swapcontext(&block->fibers[block->current].context, &block->scheduler); }
inline void block_barrier() {
  Fiber& fiber = block->fibers[block->current];
  const int mine = fiber.block_generation++;
  if (++block->arrived == static_cast<int>(block->fibers.size())) {
    block->arrived = 0;
    ++block->generation;
  }
  while (block->generation == mine) yield();
}
// All threads of both blocks of a cluster.
inline void cluster_barrier() {
  const int all = ++block->fibers[block->current].cluster_generation * static_cast<int>(block->fibers.size());
  ++block->cluster_arrived;
  while (block->cluster_arrived < all || block->peer->cluster_arrived < all) yield();
}
inline void warp_barrier() {
  Fiber& fiber = block->fibers[block->current];
  Warp& warp = block->warps[block->current / 32];
  const int mine = fiber.warp_generation++;
  if (++warp.arrived == warp.lanes) {
    warp.arrived = 0;
    ++warp.generation;
  }
  while (warp.generation == mine) yield();
}
inline void land(const Copy& copy) { std::memcpy(copy.to, copy.from, copy.bytes); }

inline void enter() {
  block->body();
  block->fibers[block->current].done = true;
  yield();
}
// One block, or the two of a cluster: `index` and its neighbour.
inline void run_blocks(int count, dim3 index, int threads, size_t shared_bytes, const std::function<void()>& body) {
  constexpr size_t kStack = 128 * 1024;
  std::vector<Block> blocks(count);
  for (Block& here : blocks) {
    here.index = dim3(index.x++, index.y, index.z);
    here.peer = count == 2 ? &blocks[&here == &blocks[0] ? 1 : 0] : nullptr;
    here.fibers.resize(threads);
    here.warps.resize((threads + 31) / 32);
    here.groups.resize((threads + 127) / 128);
    here.shared.assign(shared_bytes + 1024, 0xff);
    here.body = body;
    for (Fiber& fiber : here.fibers) {
      fiber.stack.reset(new char[kStack]);
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = kStack;
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, enter, 0);
    }
  }
  for (bool left = true; left;) {
    left = false;
    for (int i = 0; i < count * threads; ++i) {
      const int number = options.descending ? count * threads - 1 - i : i;
      block = &blocks[number / threads];
      block->current = number % threads;
      if (block->fibers[block->current].done) continue;
      block_index = block->index;
      swapcontext(&block->scheduler, &block->fibers[block->current].context);
      left = true;
    }
  }
  block = nullptr;
}
// Every lane of the warp deposits up to eight words; returns the table of all lanes.
inline const uint32_t (*exchange(std::initializer_list<uint32_t> words))[8] {
  const int parity = block->fibers[block->current].warp_generation % 2;
  Warp& warp = block->warps[block->current / 32];
  std::copy(words.begin(), words.end(), warp.slots[parity][block->current % 32]);
  warp_barrier();
  return warp.slots[parity];
}
inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

}  // namespace k3::cuda::emulator

#define threadIdx ::k3::cuda::emulator::thread_index
#define blockIdx ::k3::cuda::emulator::block_index
#define gridDim ::k3::cuda::emulator::grid_size
#define __syncthreads ::k3::cuda::emulator::block_barrier
#define __syncwarp ::k3::cuda::emulator::warp_barrier

namespace k3::cuda {

using std::max;
using std::min;

using emulator::bits_of;
inline float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline uint32_t to_tf32(float x) { return (emulator::bits_of(x) + 0x1000u) & ~0x1fffu; }
inline void tensor_core_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const auto table = emulator::exchange({a[0], a[1], a[2], a[3], b[0], b[1]});
  const int lane = emulator::block->current % 32;
  for (int e = 0; e < 4; ++e) {
    const int row = lane / 4 + 8 * (e / 2), column = 2 * (lane % 4) + e % 2;
    double sum = d[e];
    for (int k = 0; k < 8; ++k) {
      const uint32_t left = table[row % 8 * 4 + k % 4][row / 8 + 2 * (k / 4)],
                     right = table[column * 4 + k % 4][4 + k / 4];
      sum += static_cast<double>(from_bits(left & ~0x1fffu)) * from_bits(right & ~0x1fffu);
    }
    d[e] = static_cast<float>(sum);
  }
}
// Products of 16-bit elements: element(pair, which) widens one of a pair.
inline float bf16_element(uint32_t pair, int which) { return from_bits(which ? pair & 0xffff0000u : pair << 16); }
template <class Element>
void tensor_core_16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Element element) {
  const auto table = emulator::exchange({a[0], a[1], a[2], a[3], b0, b1});
  const int lane = emulator::block->current % 32;
  for (int e = 0; e < 4; ++e) {
    const int row = lane / 4 + 8 * (e / 2), column = 2 * (lane % 4) + e % 2;
    double sum = d[e];
    for (int k = 0; k < 16; ++k) {
      const uint32_t left = table[row % 8 * 4 + k % 8 / 2][row / 8 + 2 * (k / 8)],
                     right = table[column * 4 + k % 8 / 2][4 + k / 8];
      sum += static_cast<double>(element(left, k % 2)) * element(right, k % 2);
    }
    d[e] = static_cast<float>(sum);
  }
}
inline void tensor_core_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  tensor_core_16(d, a, b[0], b[1], bf16_element);
}
inline float fast_tanh(float x) { return std::tanh(x); }
inline float fast_reciprocal(float x) { return 1.f / x; }
inline float approximate_reciprocal(float x) { return 1.f / x; }
inline float approximate_inverse_sqrt(float x) { return 1.f / std::sqrt(x); }
inline float inverse_sqrt(float x) { return 1.f / std::sqrt(x); }
inline float shuffle(float x, int lane) { return from_bits(emulator::exchange({emulator::bits_of(x)})[lane][0]); }
inline int shuffle(int x, int lane) {
  return static_cast<int>(emulator::exchange({static_cast<uint32_t>(x)})[lane][0]);
}
inline int find_first_bit(uint32_t bits) { return std::countr_zero(bits); }
inline uint32_t ballot(bool yes) {
  const auto table = emulator::exchange({static_cast<uint32_t>(yes)});
  uint32_t bits = 0;
  for (int lane = 0; lane < 32; ++lane) bits |= table[lane][0] << lane;
  return bits;
}
inline uint32_t atomicAdd(uint32_t* p, uint32_t x) { return std::exchange(*p, *p + x); }
inline float shuffle_xor(float x, int mask) {
  return from_bits(emulator::exchange({emulator::bits_of(x)})[(emulator::block->current % 32) ^ mask][0]);
}
inline void copy_async_16(void* shared, const void* global) {
  const emulator::Copy copy{shared, global};
  if (emulator::options.late_copies) emulator::block->fibers[emulator::block->current].open.push_back(copy);
  else emulator::land(copy);
}
inline void copy_async_commit() {
  emulator::Fiber& fiber = emulator::block->fibers[emulator::block->current];
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}
template <int kPending>
void copy_async_wait() {
  auto& groups = emulator::block->fibers[emulator::block->current].groups;
  while (static_cast<int>(groups.size()) > kPending) {
    for (const emulator::Copy& copy : groups.front()) emulator::land(copy);
    groups.erase(groups.begin());
  }
}
inline void assume(bool) {}
inline int opaque(int x) { return x; }
inline uint32_t permute_bytes(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out |= static_cast<uint32_t>(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  return out;
}
template <int kThreads>
void named_barrier_arrive(int id) {
  emulator::Named& barrier = emulator::block->named[id];
  if (++barrier.arrived == kThreads) barrier.arrived = 0, ++barrier.generation;
}
template <int kThreads>
void named_barrier(int id) {
  emulator::Named& barrier = emulator::block->named[id];
  const int mine = barrier.generation;
  named_barrier_arrive<kThreads>(id);
  while (barrier.generation == mine) emulator::yield();
}
inline uint32_t load_relaxed(const uint32_t* p) { return *p; }
inline float load_relaxed(const float* p) { return *p; }
inline void sleep_nanoseconds(unsigned) {}
inline void wait_nanoseconds(unsigned) {}
inline void store_release(uint32_t* p, uint32_t value) { *p = value; }
inline void add_release(uint32_t* p, uint32_t x) { *p += x; }
// Kernels run one after another: a flag that is not there never comes.
inline uint32_t load_acquire(const uint32_t* p) {
  if (*p == 0) std::printf("no kernel before has set this flag\n"), std::abort();
  return *p;
}
inline float fast_exp2(float x) { return std::exp2(x); }
inline int multiprocessors() { return 2; }
inline unsigned multiprocessor() { return 0; }
inline int device_capability() { return 90; }
inline cudaError_t clear_async(void* memory, size_t bytes, cudaStream_t) {
  std::memset(memory, 0, bytes);
  return cudaSuccess;
}

template <class T>
T* shared_memory() {
  const auto address = reinterpret_cast<std::uintptr_t>(emulator::block->shared.data());
  return reinterpret_cast<T*>((address + 1023) / 1024 * 1024);
}

template <int kCluster = 1, class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes, cudaStream_t,
                   Arguments&&... arguments) {
  const std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
  emulator::grid_size = grid;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; x += kCluster)
        emulator::run_blocks(kCluster, dim3(x, y, z), threads, shared_bytes, [&] { std::apply(kernel, values); });
  return cudaSuccess;
}

// ---- sm_90: mbarriers, bulk copies, warpgroup products (kernels/cuda/common/mbarrier.cuh, wgmma.cuh). Addresses
// count from the aligned base.
inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(p) - shared_memory<unsigned char>());
}
inline unsigned char* shared_at(uint32_t address) { return shared_memory<unsigned char>() + address; }
inline void barrier_init(uint32_t barrier, int arrivals) {
  emulator::block->barriers[barrier] = {arrivals, arrivals, 0, 0};
}
inline void barrier_init_fence() {}
inline void barrier_arrive(uint32_t barrier) {
  --emulator::block->barriers.at(barrier).pending;
  emulator::block->barriers.at(barrier).settle();
}
inline void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  emulator::block->barriers.at(barrier).bytes += bytes;
  barrier_arrive(barrier);
}
inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  while (static_cast<uint32_t>(emulator::block->barriers.at(barrier).phase & 1) == parity) emulator::yield();
}
inline void bulk_copy_in(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  std::memcpy(shared_at(shared), global, bytes);
  emulator::block->barriers.at(barrier).bytes -= bytes;
  emulator::block->barriers.at(barrier).settle();
}
inline void bulk_copy_out(void* global, uint32_t shared, uint32_t bytes) {
  const emulator::Copy copy{global, shared_at(shared), bytes};
  if (emulator::options.late_copies) emulator::block->fibers[emulator::block->current].bulk.push_back(copy);
  else emulator::land(copy);
}
inline void bulk_commit() {
  emulator::Fiber& fiber = emulator::block->fibers[emulator::block->current];
  fiber.bulk_groups.push_back(std::move(fiber.bulk));
  fiber.bulk.clear();
}
template <int kPending>
void bulk_wait_read() {
  auto& groups = emulator::block->fibers[emulator::block->current].bulk_groups;
  while (static_cast<int>(groups.size()) > kPending) {
    for (const emulator::Copy& copy : groups.front()) emulator::land(copy);
    groups.erase(groups.begin());
  }
}
inline void bulk_wait_written() { bulk_wait_read<0>(); }
inline void async_proxy_fence() {}
inline void async_proxy_fence_global() {}
inline void store_shared(uint32_t address, uint32_t word) { std::memcpy(shared_at(address), &word, 4); }
inline void copy_async_16(uint32_t shared, const void* global) { copy_async_16(shared_at(shared), global); }
inline float load_shared_float(uint32_t address) { return *reinterpret_cast<float*>(shared_at(address)); }
inline float2 load_shared_float2(uint32_t address) { return *reinterpret_cast<float2*>(shared_at(address)); }
inline uint2 load_shared_uint2(uint32_t address) { return *reinterpret_cast<uint2*>(shared_at(address)); }
inline uint4 load_shared_uint4(uint32_t address) { return *reinterpret_cast<uint4*>(shared_at(address)); }

inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int kPending>
void wgmma_wait() {}
template <int kCount>
void settle(float (&)[kCount]) {}
template <int kRegisters>
void registers_up() {}
template <int kRegisters>
void registers_down() {}

template <int kAdd, int kSign, int kAcross, int kCount, class Element>
void wgmma_16(float (&d)[kCount], const uint32_t* a, uint64_t descriptor, Element element) {
  emulator::Fiber& fiber = emulator::block->fibers[emulator::block->current];
  emulator::Group& group = emulator::block->groups[emulator::block->current / 128];
  const int thread = emulator::block->current % 128, mine = fiber.group_generation++, parity = mine % 2;
  std::copy(a, a + 4, group.slots[parity][thread]);
  if (++group.arrived == 128) {
    group.arrived = 0;
    ++group.generation;
  }
  while (group.generation == mine) emulator::yield();
  const uint32_t start = (descriptor & 0x3fff) << 4, stride = (descriptor >> 16 & 0x3fff) << 4;
  for (int i = 0; i < kCount; ++i) {
    const int row = thread % 32 / 4 + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
    double sum = kAdd ? d[i] : 0.f;
    for (int k = 0; k < 16; ++k) {
      const uint32_t* from = group.slots[parity][thread / 32 * 32 + row % 8 * 4 + k % 8 / 2];
      uint32_t address = kAcross ? start + column / 64 * stride + k / 8 * 1024 + k % 8 * 128 + column % 64 * 2
                                 : start + column / 8 * 1024 + column % 8 * 128 + k * 2;
      address ^= (address >> 7 & 7) << 4;
      uint16_t bits;
      std::memcpy(&bits, shared_at(address), 2);
      sum += kSign * static_cast<double>(element(from[row / 8 + 2 * (k / 8)], k % 2)) *
             element(bits, 0);
    }
    d[i] = static_cast<float>(sum);
  }
}
template <int kAdd, int kSign, int kAcross, int kCount>
void wgmma(float (&d)[kCount], const uint32_t* a, uint64_t descriptor) {
  wgmma_16<kAdd, kSign, kAcross>(d, a, descriptor, bf16_element);
}
inline void load_matrices(uint32_t (&r)[4], uint32_t address) {
  const auto table = emulator::exchange({address});
  const int lane = emulator::block->current % 32;
  for (int matrix = 0; matrix < 4; ++matrix)
    std::memcpy(&r[matrix], shared_at(table[8 * matrix + lane / 4][0] + lane % 4 * 4), 4);
}
inline void load_transposed(uint32_t (&r)[4], uint32_t address) {
  const auto table = emulator::exchange({address});
  const int lane = emulator::block->current % 32;
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t values[2];
    for (int e = 0; e < 2; ++e)
      std::memcpy(&values[e], shared_at(table[8 * matrix + 2 * (lane % 4) + e][0] + lane / 4 * 2), 2);
    r[matrix] = values[0] | static_cast<uint32_t>(values[1]) << 16;
  }
}
inline void store_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const auto table = emulator::exchange({address});
  const int lane = emulator::block->current % 32;
  const uint32_t words[4] = {a, b, c, d};
  for (int matrix = 0; matrix < 4; ++matrix)
    for (int e = 0; e < 2; ++e) {
      const uint16_t value = static_cast<uint16_t>(words[matrix] >> 16 * e);
      std::memcpy(shared_at(table[8 * matrix + 2 * (lane % 4) + e][0] + lane / 4 * 2), &value, 2);
    }
}

}  // namespace k3::cuda

// How the chunks of a slab are shared among the state blocks when both kernels of prefill.h run at once (McNaughton's
// wrap-around rule: R. McNaughton, Scheduling with deadlines and loss functions, 1959). All chunks stand in a row, line
// by line, and are cut into intervals of equal length, at least a line's. A state block walks its interval line by line
// from the last one, each line forwards. So the first part of a line that lies in two intervals is what one block
// begins with, and the second part is what the next block ends with, when the state between has long been there.
#pragma once

#include "kernels/cuda/kda/prefill_blocks.cuh"

namespace k3::cuda::kda::prefill_detail {

// A division in five instructions, for numbers below 2^31.
struct Divisor {
  unsigned divisor, inverse;
  Divisor() = default;
  __device__ __forceinline__ explicit Divisor(int divisor)
      : divisor(divisor), inverse(divisor > 0 ? 0xffffffffu / divisor : 0) {}
  __device__ __forceinline__ int divide(int number) const {
    const auto guess = static_cast<unsigned>((static_cast<std::uint64_t>(number) * inverse) >> 32);  // or one too few
    return static_cast<int>(guess + (number - guess * divisor >= divisor));
  }
};
// Of the slab's first 32 rows: chunks of a line; chunks of all lines of the rows up to this one.
struct alignas(16) Shares {
  static constexpr int kRows = 32;
  int all, each;  // chunks of the slab; of a state block
  int first_row;  // of the slab
  Divisor blocks, heads, chunks[kRows];
  int ends[kRows];
  __device__ __forceinline__ int begin(int block) const { return min(block * each, all); }
  __device__ __forceinline__ int end(int block) const { return begin(block + 1); }
};
// A row's lines in the slab.
struct RowLines {
  int first, count;
  __device__ __forceinline__ RowLines(const StepArguments& a, const Slab& slab, int row)
      : first(max(slab.first_line, row * a.heads)),
        count(max(0, min(slab.first_line + slab.lines, (row + 1) * a.heads) - first)) {}
};
// Fills `shares`, which all lanes of a warp give, in shared memory.
__device__ __forceinline__ void share_chunks(Shares& shares, const StepArguments& a, const Slab& slab, int lane) {
  int all = 0, longest = 0;
  const int first = slab.first_line / a.heads, last = (slab.first_line + slab.lines - 1) / a.heads;
  for (int row = first; row <= last; row += Shares::kRows) {
    const int count = row + lane <= last ? RowLines(a, slab, row + lane).count : 0,
              chunks = count > 0 ? share_of(a, slab, row + lane).chunks : 0;
    const int rows = min(Shares::kRows, last - row + 1);
    int end = 0;
    for (int i = 0; i < rows; ++i) {
      all += shuffle(count * chunks, i), longest = max(longest, shuffle(chunks, i));
      if (i == lane) end = all;
    }
    if (lane >= rows) end = all;
    if (row == first) shares.chunks[lane] = Divisor(chunks), shares.ends[lane] = end;
  }
  if (lane == 0) {
    shares.all = all, shares.each = max(longest, (all + slab.state_blocks - 1) / max(1, slab.state_blocks));
    shares.first_row = first;
    shares.heads = Divisor(a.heads), shares.blocks = Divisor(slab.state_blocks);
  }
  __syncwarp();
}
// A chunk of a line of a row.
struct LineChunk {
  int row, line, chunk;
};
// The chunk that a state block works on in a step, 0 to left - 1, with the interval [end - left, end); a whole warp.
__device__ __forceinline__ LineChunk find_step(const Shares& shares, const StepArguments& a, const Slab& slab, int end,
                                               int left, int step, int lane) {
  const int first_row = shares.first_row;
  const auto chunks_of = [&](int i) {
    return i < Shares::kRows ? shares.chunks[i] : Divisor(share_of(a, slab, first_row + i).chunks);
  };
  // The row of the interval's last chunk, counted from the slab's first one, and that chunk's place in the row.
  int i = find_first_bit(ballot(end <= shares.ends[lane])), place = end - 1;
  if (i > 0) place -= shares.ends[min(i, Shares::kRows) - 1];
  Divisor chunks = chunks_of(i);
  for (; i >= Shares::kRows; chunks = chunks_of(++i)) {
    const int places = RowLines(a, slab, first_row + i).count * static_cast<int>(chunks.divisor);
    if (place < places) break;
    place -= places;
  }
  for (;;) {
    const int each = static_cast<int>(chunks.divisor), line = chunks.divide(place), chunk = place - line * each,
              first = RowLines(a, slab, first_row + i).first, ending = min(chunk + 1, left);
    if (step < ending) return {first_row + i, first + line, chunk + 1 - ending + step};
    step -= ending, left -= ending;
    if (const int back = chunks.divide(step); back < line) {  // that many whole lines before it
      step -= back * each, left -= back * each;
      return {first_row + i, first + line - 1 - back, each - min(each, left) + step};
    }
    step -= line * each, left -= line * each;
    do {
      chunks = chunks_of(--i);
      place = RowLines(a, slab, first_row + i).count * static_cast<int>(chunks.divisor) - 1;
    } while (place < 0);
  }
}

}  // namespace k3::cuda::kda::prefill_detail

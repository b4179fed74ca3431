// Inside a chunk of C tokens, with G the running sum of g, Kd = K exp(G), Kb = K exp(G_C - G), Qd = Q exp(G):
//   L_ij = beta_i sum_d K_id K_jd exp(G_id - G_jd)  (i > j)      [W | U] = (I + L)^-1 diag(beta) [Kd | V]
//   A_ij = s sum_d Q_id K_jd exp(G_id - G_jd)       (i >= j)
// and from chunk to chunk: Vn = U - W S;  O = s Qd S + A Vn;  S <- diag(exp(G_C)) S + Kb^T Vn.
// All chunks of all rows are one batch [chunks, heads, C, dim]; only the last line is sequential, and it steps all rows at once.
#include "ops/kda/kda_chunk.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace k3::ops {
namespace {

// Chunks ordered by their position in the row, longest rows first, so that step s is one contiguous range of chunks.
struct ChunkPlan {
  std::vector<std::int64_t> row_order;       // rows by falling number of chunks
  std::vector<std::int64_t> active;          // [steps] rows that have a chunk number s
  std::vector<std::int64_t> token_of;        // [chunks * C] token, clamped into range where padded
  std::vector<std::int64_t> chunk_position;  // [tokens] place of the token in the chunk batch
  std::vector<std::uint8_t> valid;           // [chunks * C]
  bool padded = false;
};

ChunkPlan plan_chunks(const RowPlan& plan) {
  ChunkPlan chunks;
  const auto count = [&](std::int64_t row) { return (plan.length(row) + kKdaChunk - 1) / kKdaChunk; };
  chunks.row_order.resize(plan.rows());
  std::iota(chunks.row_order.begin(), chunks.row_order.end(), 0);
  std::stable_sort(chunks.row_order.begin(), chunks.row_order.end(), [&](auto a, auto b) { return count(a) > count(b); });
  chunks.chunk_position.resize(plan.tokens());
  const std::int64_t steps = plan.rows() > 0 ? count(chunks.row_order[0]) : 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    std::int64_t active = 0;
    for (const std::int64_t row : chunks.row_order) {
      if (count(row) <= step) break;
      ++active;
      for (std::int64_t i = 0; i < kKdaChunk; ++i) {
        const std::int64_t token = plan.starts[row] + step * kKdaChunk + i;
        const bool valid = token < plan.starts[row + 1];
        if (valid) chunks.chunk_position[token] = static_cast<std::int64_t>(chunks.token_of.size());
        chunks.token_of.push_back(valid ? token : plan.starts[row + 1] - 1);
        chunks.valid.push_back(valid);
        chunks.padded |= !valid;
      }
    }
    chunks.active.push_back(active);
  }
  return chunks;
}

Tensor index_tensor(const std::vector<std::int64_t>& values, const Tensor& like) {
  return at::tensor(values, at::kLong).to(like.device());
}

struct Pairs {
  Tensor kk;  // [chunks, heads, C, C] sum_d K_id K_jd exp(G_id - G_jd) for i > j, else 0
  Tensor qk;  //                       the same with Q_i, for i >= j
};

// Decayed products tile by tile. Each row tile takes the decay relative to its first row, so the row factor is <= 1 and the column
// factor is <= 1 left of the diagonal tile. On it the column factor reaches exp(15 * 5) at the bound, which fp32 holds; an unbounded
// gate takes the difference of the exponents there instead.
Pairs decayed_products(const Tensor& q, const Tensor& k, const Tensor& g_sum, bool bounded) {
  std::vector<Tensor> kk_rows, qk_rows;
  for (std::int64_t start = 0; start < kKdaChunk; start += kKdaTile) {
    const auto tile = [&](const Tensor& x) { return x.narrow(-2, start, kKdaTile); };
    const std::int64_t columns = bounded ? start + kKdaTile : start;
    const Tensor anchor = g_sum.narrow(-2, start, 1).detach();
    const Tensor row_factor = at::exp(tile(g_sum) - anchor);
    const Tensor rows = at::cat({tile(q) * row_factor, tile(k) * row_factor}, -2);  // [chunks, heads, 2 * tile, dim]
    std::vector<Tensor> parts;
    if (columns > 0) {
      const Tensor column_factor = at::exp(anchor - g_sum.narrow(-2, 0, columns));
      parts.push_back(at::matmul(rows, (k.narrow(-2, 0, columns) * column_factor).transpose(-1, -2)));
    }
    if (!bounded) {
      const Tensor difference = tile(g_sum).unsqueeze(-2) - tile(g_sum).unsqueeze(-3);  // [..., i, j, dim]
      // Positive only above the diagonal, which is dropped below; the clamp keeps it finite.
      const Tensor decayed = at::exp(at::clamp_max(difference, 0)) * tile(k).unsqueeze(-3);
      parts.push_back(at::cat({(tile(q).unsqueeze(-2) * decayed).sum(-1), (tile(k).unsqueeze(-2) * decayed).sum(-1)}, -2));
    }
    if (start + kKdaTile < kKdaChunk) {
      auto shape = rows.sizes().vec();
      shape.back() = kKdaChunk - start - kKdaTile;
      parts.push_back(at::zeros(shape, q.options()));
    }
    const Tensor both = at::cat(parts, -1);
    qk_rows.push_back(both.narrow(-2, 0, kKdaTile));
    kk_rows.push_back(both.narrow(-2, kKdaTile, kKdaTile));
  }
  // The upper triangle may hold huge values: it is removed by selection, never by multiplication.
  const Tensor zero = at::zeros({}, q.options());
  const Tensor lower = at::ones({kKdaChunk, kKdaChunk}, q.options().dtype(at::kBool)).tril();
  return {at::where(lower.tril(-1), at::cat(kk_rows, -2), zero), at::where(lower, at::cat(qk_rows, -2), zero)};
}

}  // namespace

KdaResult kda_chunk(const KdaInputs& in, const RowPlan& plan, const Tensor& initial_state) {
  const std::int64_t heads = in.q.size(1), key_dim = in.q.size(2), value_dim = in.v.size(2);
  const double scale = 1.0 / std::sqrt(static_cast<double>(key_dim));
  const ChunkPlan chunks = plan_chunks(plan);
  if (chunks.active.empty()) return {at::zeros_like(in.v), initial_state};

  const Tensor token_of = index_tensor(chunks.token_of, in.q);
  const std::int64_t count = token_of.size(0) / kKdaChunk;
  const auto gather = [&](const Tensor& x) {  // [tokens, heads, dim] -> [chunks, heads, C, dim]
    return x.index_select(0, token_of).view({count, kKdaChunk, heads, x.size(-1)}).transpose(1, 2);
  };
  const Tensor q = gather(in.q), k = gather(in.k), v = gather(in.v);
  Tensor g = gather(in.g), beta = gather(in.beta.unsqueeze(-1));
  if (chunks.padded) {
    // Padding changes nothing when it neither decays nor writes: g = 0 and beta = 0.
    const Tensor valid = at::tensor(at::ArrayRef<std::uint8_t>(chunks.valid), at::kByte).to(in.q.device()).to(in.q.scalar_type());
    const Tensor mask = valid.view({count, 1, kKdaChunk, 1});
    g = g * mask;
    beta = beta * mask;
  }

  const Tensor g_sum = g.cumsum(-2);
  const Tensor g_last = g_sum.narrow(-2, kKdaChunk - 1, 1);
  const Pairs pairs = decayed_products(q, k, g_sum, in.bounded);
  const Tensor decay = at::exp(g_sum);
  const Tensor right = beta * at::cat({k * decay, v}, -1);
  const Tensor solved = at::linalg_solve_triangular(pairs.kk * beta, right, /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
  const Tensor w = solved.narrow(-1, 0, key_dim), u = solved.narrow(-1, key_dim, value_dim);
  const Tensor q_decayed = q * decay * scale, attention = pairs.qk * scale;
  const Tensor k_restored = (k * at::exp(g_last - g_sum)).transpose(-1, -2);  // [chunks, heads, key_dim, C]
  const Tensor carry = at::exp(g_last).transpose(-1, -2);                     // [chunks, heads, key_dim, 1]

  Tensor state = initial_state.index_select(0, index_tensor(chunks.row_order, in.q));
  std::vector<Tensor> outs, finished;  // finished states, in reverse row order
  std::int64_t first = 0;
  const auto retire = [&](std::int64_t active) {
    if (active < state.size(0)) finished.push_back(state.narrow(0, active, state.size(0) - active));
    state = state.narrow(0, 0, active);
  };
  for (const std::int64_t active : chunks.active) {
    retire(active);
    const auto step = [&](const Tensor& x) { return x.narrow(0, first, active); };
    const Tensor values = step(u) - at::matmul(step(w), state);
    outs.push_back(at::matmul(step(q_decayed), state) + at::matmul(step(attention), values));
    state = step(carry) * state + at::matmul(step(k_restored), values);
    first += active;
  }
  finished.push_back(state);
  std::reverse(finished.begin(), finished.end());

  std::vector<std::int64_t> rank_of(plan.rows());
  for (std::int64_t rank = 0; rank < plan.rows(); ++rank) rank_of[chunks.row_order[rank]] = rank;
  const Tensor flat = at::cat(outs).transpose(1, 2).reshape({count * kKdaChunk, heads, value_dim});
  return {flat.index_select(0, index_tensor(chunks.chunk_position, in.q)),
          at::cat(finished).index_select(0, index_tensor(rank_of, in.q))};
}

}  // namespace k3::ops

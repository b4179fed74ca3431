#include "model/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace k3 {
namespace {

struct Candidate {
  double value;  // logit, later probability
  std::int64_t id;
  // Heap order: best on top; among equals the lowest id.
  bool operator<(const Candidate& other) const { return value != other.value ? value < other.value : id > other.id; }
};

std::uint64_t mix(std::uint64_t x) {  // splitmix64 finaliser
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t position) {  // [0, 1)
  return static_cast<double>(mix(mix(mix(seed) ^ stream) ^ position) >> 11) * 0x1p-53;
}

// Takes candidates off the heap, best first, until the cuts of `options` are reached. Values become probabilities after temperature.
std::vector<Candidate> survivors(std::vector<Candidate> heap, const SamplingOptions& options) {
  const auto vocab = static_cast<std::int64_t>(heap.size());
  const double best = heap.front().value;
  const std::int64_t limit = options.top_k > 0 ? std::min(options.top_k, vocab) : vocab;
  std::vector<Candidate> kept;
  double mass = 0.0;
  if (limit == vocab)
    for (const Candidate& candidate : heap) mass += std::exp((candidate.value - best) / options.temperature);
  else {
    std::vector<Candidate> top = heap;
    std::nth_element(top.begin(), top.begin() + limit, top.end(), [](const Candidate& a, const Candidate& b) { return b < a; });
    for (std::int64_t i = 0; i < limit; ++i) mass += std::exp((top[i].value - best) / options.temperature);
  }
  double taken = 0.0;
  while (static_cast<std::int64_t>(kept.size()) < limit && (kept.empty() || taken < options.top_p * mass)) {
    std::pop_heap(heap.begin(), heap.end());
    Candidate next = heap.back();
    heap.pop_back();
    next.value = std::exp((next.value - best) / options.temperature);  // relative to the best
    if (next.value < options.min_p) break;
    taken += next.value;
    kept.push_back(next);
  }
  return kept;
}

}  // namespace

void check_sampling(const SamplingOptions& options) {
  if (!(options.temperature >= 0.0 && options.temperature <= 100.0))
    throw_user("--temperature {} must lie between 0 (greedy) and 100", options.temperature);
  if (!(options.top_p > 0.0 && options.top_p <= 1.0)) throw_user("--top-p {} must lie above 0 and not above 1", options.top_p);
  if (!(options.min_p >= 0.0 && options.min_p <= 1.0)) throw_user("--min-p {} must lie between 0 and 1", options.min_p);
  if (options.top_k < 0) throw_user("--top-k {} must not be negative; 0 keeps all tokens", options.top_k);
}

Sampled sample(const Tensor& row, const SamplingOptions& options, std::uint64_t stream, std::uint64_t position, std::int64_t top) {
  const Tensor values = row.to(at::kCPU, at::kDouble).contiguous();
  const double* logits = values.const_data_ptr<double>();
  const std::int64_t vocab = values.numel();
  std::int64_t best = 0;
  for (std::int64_t id = 1; id < vocab; ++id)
    if (logits[id] > logits[best]) best = id;
  if (!std::isfinite(logits[best])) throw_user("the model's logits at position {} are not finite; its weights are damaged", position);
  double sum = 0.0;
  for (std::int64_t id = 0; id < vocab; ++id) sum += std::exp(logits[id] - logits[best]);
  const double log_sum = logits[best] + std::log(sum);

  Sampled result;
  result.id = best;
  std::vector<Candidate> heap;
  if (options.temperature > 0.0 || top > 0) {
    heap.reserve(vocab);
    for (std::int64_t id = 0; id < vocab; ++id) heap.push_back({logits[id], id});
    std::make_heap(heap.begin(), heap.end());
  }
  if (options.temperature > 0.0) {
    const std::vector<Candidate> kept = survivors(heap, options);
    double mass = 0.0;
    for (const Candidate& candidate : kept) mass += candidate.value;
    double left = uniform(options.seed, stream, position) * mass;
    result.id = kept.back().id;
    for (const Candidate& candidate : kept) {
      left -= candidate.value;
      if (left < 0.0) {
        result.id = candidate.id;
        break;
      }
    }
  }
  result.logprob = logits[result.id] - log_sum;
  for (std::int64_t i = 0; i < std::min(top, vocab); ++i) {
    std::pop_heap(heap.begin(), heap.end());
    result.top.emplace_back(heap.back().id, heap.back().value - log_sum);
    heap.pop_back();
  }
  return result;
}

}  // namespace k3

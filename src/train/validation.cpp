#include "train/validation.h"

#include <algorithm>
#include <numbers>

#include "base/error.h"

namespace k3::train {

std::vector<std::int32_t> token_byte_lengths(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(tokenizer.vocab()));
  for (TokenId id = 0; id < tokenizer.vocab(); ++id)
    lengths[static_cast<std::size_t>(id)] =
        tokenizer.is_control(id) ? 0 : static_cast<std::int32_t>(tokenizer.token_bytes(id).size());
  return lengths;
}

double counted_bytes(const MicroBatch& batch, const std::vector<std::int32_t>& byte_lengths) {
  std::int64_t bytes = 0;
  for (std::size_t token = 0; token < batch.targets.size(); ++token)
    if (batch.mask[token] != 0) bytes += byte_lengths[static_cast<std::size_t>(batch.targets[token])];
  return static_cast<double>(bytes);
}

double bits_per_byte(double nats, double bytes) { return bytes > 0 ? nats / (bytes * std::numbers::ln2) : 0.0; }

ValidationSet make_validation_set(const std::string& name, std::shared_ptr<const Shard> shard, std::int64_t tokens,
                                  std::int64_t context, std::int64_t micro_batch_tokens,
                                  const std::vector<std::int32_t>& byte_lengths) {
  ValidationSet set;
  set.name = name;
  MicroBatch batch;
  const auto flush = [&] {
    if (batch.counted > 0) {
      set.counted += batch.counted;
      set.bytes += counted_bytes(batch, byte_lengths);
      set.batches.push_back(std::move(batch));
    }
    batch = MicroBatch{};
  };
  std::int64_t used = 0;
  for (std::int64_t document = 0; document < shard->documents() && used < tokens; ++document) {
    const std::int64_t inputs = shard->length(document) - 1;
    if (shard->whole() && inputs > context) continue;
    for (std::int64_t offset = 0; offset < inputs && used < tokens; offset += context) {
      const std::int64_t length = std::min(context, inputs - offset);
      if (static_cast<std::int64_t>(batch.ids.size()) + length > micro_batch_tokens) flush();
      for (std::int64_t token = shard->start(document) + offset, last = token + length; token < last; ++token) {
        batch.ids.push_back(shard->id(token));
        batch.targets.push_back(shard->id(token + 1));
        batch.mask.push_back(shard->counts(token + 1) ? 1.0f : 0.0f);
        batch.counted += shard->counts(token + 1) ? 1 : 0;
      }
      batch.row_starts.push_back(static_cast<std::int64_t>(batch.ids.size()));
      used += length;
    }
  }
  flush();
  if (set.counted == 0) throw_user("validation.{}: has no sample that fits into a context of {} tokens", name, context);
  return set;
}

ValidationResult validate(const Trainee& trainee, const ValidationSet& set) {
  Tensor total = at::zeros({}, at::TensorOptions().device(trainee.model.device()).dtype(at::kDouble));
  for (const MicroBatch& batch : set.batches)
    total += trainee.loss_without_gradient(to_device(batch, trainee.model.device()), 1.0).to(at::kDouble);
  const double nats = total.item<double>();
  return {nats / static_cast<double>(set.counted), bits_per_byte(nats, set.bytes)};
}

}  // namespace k3::train

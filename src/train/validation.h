// Loss on data that is never trained on: the first tokens of each validation source, in order, each document from a
// fresh state.
#pragma once

#include <string>
#include <vector>

#include "train/trainee.h"

namespace k3::train {

struct ValidationSet {
  std::string name;
  std::vector<MicroBatch> batches;
  std::int64_t counted = 0;  // targets that count
  double bytes = 0;          // their text
};

// Bytes of text behind each id; control tokens are 0.
std::vector<std::int32_t> token_byte_lengths(const Tokenizer& tokenizer);
double counted_bytes(const MicroBatch& batch, const std::vector<std::int32_t>& byte_lengths);

ValidationSet make_validation_set(const std::string& name, std::shared_ptr<const Shard> shard, std::int64_t tokens,
                                  std::int64_t context, std::int64_t micro_batch_tokens,
                                  const std::vector<std::int32_t>& byte_lengths);

struct ValidationResult {
  double loss = 0,
         bits_per_byte = 0;  // nats per counted token; bits per byte is 0 when the targets are control tokens only
};
ValidationResult validate(const Trainee& trainee, const ValidationSet& set);
double bits_per_byte(double nats, double bytes);

}  // namespace k3::train

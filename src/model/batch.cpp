#include "model/batch.h"

namespace k3 {

ForwardBatch pack_documents(std::span<const std::vector<std::int64_t>> documents, at::Device device) {
  ForwardBatch batch;
  std::vector<std::int64_t> ids, lengths;
  for (const auto& document : documents) {
    ids.insert(ids.end(), document.begin(), document.end());
    lengths.push_back(static_cast<std::int64_t>(document.size()));
  }
  batch.plan = RowPlan::of_lengths(lengths);
  batch.ids = at::tensor(ids, at::kLong).to(device);
  return batch;
}

ForwardBatch continue_row(std::span<const std::int64_t> ids, std::int64_t context, std::int64_t slot, at::Device device) {
  ForwardBatch batch;
  batch.plan.starts = {0, static_cast<std::int64_t>(ids.size())};
  batch.plan.contexts = {context};
  batch.plan.slots = {slot};
  batch.ids = at::tensor(at::ArrayRef<std::int64_t>(ids.data(), ids.size()), at::kLong).to(device);
  return batch;
}

}  // namespace k3

// A checkpoint against the tensor list of its config: every difference in one message.
#include <set>

#include "base/error.h"
#include "checkpoint/names.h"

namespace k3 {
namespace {

constexpr std::size_t kNamesShown = 12;  // of each kind of problem; the count is always given

bool is_float(Dtype dtype) {
  return dtype == Dtype::F64 || dtype == Dtype::F32 || dtype == Dtype::F16 || dtype == Dtype::BF16;
}

bool is_vision(const std::string& name) {
  return name.starts_with("vision_tower.") || name.starts_with("mm_projector.");
}

// A_log holds one entry a head; K3 pads the list with zeros, Kimi Linear writes [1, 1, heads, 1].
bool a_log_shape_fits(const std::vector<std::int64_t>& shape, std::int64_t heads) {
  if (shape.size() == 1) return shape[0] >= heads;
  return shape == std::vector<std::int64_t>{1, 1, heads, 1};
}

struct Problems {
  std::string title;
  std::vector<std::string> entries;

  std::string text() const {
    std::string line = fmt::format("{} {}: ", entries.size(), title);
    for (std::size_t at = 0; at < entries.size() && at < kNamesShown; ++at) line += (at > 0 ? ", " : "") + entries[at];
    if (entries.size() > kNamesShown) line += fmt::format(" and {} more", entries.size() - kNamesShown);
    return line;
  }
};

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace

void check_tensors(const ModelConfig& config, const Checkpoint& checkpoint) {
  Problems missing{"missing", {}}, unread{"not read", {}}, shapes{"of wrong shape", {}}, dtypes{"of wrong dtype", {}};
  std::set<std::string> expected_names;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    expected_names.insert(expected.name);
    const TensorView* found = checkpoint.find(expected.name);
    if (found == nullptr) {
      missing.entries.push_back(expected.name);
      continue;
    }
    const bool shape_fits =
        expected.a_log ? a_log_shape_fits(found->shape, config.kda.heads) : found->shape == expected.shape;
    if (!shape_fits)
      shapes.entries.push_back(
          fmt::format("{} {} (config: {})", expected.name, shape_text(found->shape), shape_text(expected.shape)));
    const bool dtype_fits = expected.any_float ? is_float(found->dtype) : found->dtype == expected.dtype;
    if (!dtype_fits)
      dtypes.entries.push_back(fmt::format("{} {} (wanted: {})", expected.name, dtype_name(found->dtype),
                                           expected.any_float ? "BF16, F16, F32 or F64" : dtype_name(expected.dtype)));
  }
  for (const auto& [name, view] : checkpoint.tensors())
    if (!expected_names.contains(name) && (config.vision.has_value() || !is_vision(name)))
      unread.entries.push_back(name);
  std::string all;
  for (const Problems* problems : {&missing, &unread, &shapes, &dtypes})
    if (!problems->entries.empty()) all += (all.empty() ? "" : "; ") + problems->text();
  if (!all.empty()) throw_user("{}: tensors do not fit config.json: {}", checkpoint.path().string(), all);
}

}  // namespace k3

#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "ops/mxfp4/mxfp4.h"

namespace k3::train {

Tensor Optimizer::view_of(const Tensor& tensor, const Piece& piece) {
  return tensor.reshape({piece.count, piece.period, piece.cols}).narrow(1, piece.first, piece.rows);
}

Tensor Optimizer::flat_view(const Tensor& flat, const Piece& piece) {
  return flat.narrow(0, piece.offset, piece.elements()).view({piece.count, piece.rows, piece.cols});
}

const Tensor& Optimizer::flat_of(const Entry& entry, const Tensor& muon, const Tensor& adamw) const {
  return entry.rule.update == Update::muon ? muon : adamw;
}

Optimizer::Optimizer(std::vector<OptimizedTensor> tensors, const OptimizerOptions& options)
    : options_(options), table_(newton_schulz_table(options.newton_schulz)) {
  at::NoGradGuard no_grad;
  K3_CHECK(!tensors.empty(), "nothing to optimise");
  for (OptimizedTensor& tensor : tensors) {
    K3_CHECK(tensor.rule.update != Update::none, "{} has no gradient to follow", tensor.name);
    K3_CHECK(tensor.compute.is_leaf() && tensor.compute.requires_grad() && tensor.compute.is_contiguous(),
             "{} must be a contiguous leaf that requires a gradient", tensor.name);
    leaves_.push_back(tensor.compute);
    entries_.push_back({tensor.name, tensor.compute.detach(), tensor.rule, {}});
  }
  lay_out();
  const auto floats = leaves_.front().options().dtype(at::kFloat).requires_grad(false);
  muon_master_ = at::zeros({muon_elements_}, floats);
  muon_momentum_ = at::zeros_like(muon_master_);
  muon_gradient_ = at::zeros_like(muon_master_);
  adamw_master_ = at::zeros({adamw_elements_}, floats);
  adamw_moment1_ = at::zeros_like(adamw_master_);
  adamw_moment2_ = at::zeros_like(adamw_master_);
  adamw_gradient_ = at::zeros_like(adamw_master_);
  healthy_ = at::ones({}, floats.dtype(at::kBool));
  gradient_norm_ = at::zeros({}, floats);
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    Tensor flat = flat_of(entries_[index], muon_master_, adamw_master_);
    fill(flat, entries_[index], tensors[index].master.detach());
  }
  for (BlockShape& shape : shapes_)
    if (shape.rounded_blocks > 0) shape.rounded = at::empty({shape.rounded_blocks, shape.rows, shape.cols}, floats);
  for (const Entry& entry : entries_) {
    for (const Piece& piece : entry.pieces) {
      Tensor source = flat_view(flat_of(entry, muon_master_, adamw_master_), piece);
      if (piece.rounded) {
        const auto shape = std::find_if(shapes_.begin(), shapes_.end(), [&](const BlockShape& candidate) {
          return piece.offset >= candidate.offset &&
                 piece.offset < candidate.offset + candidate.blocks * candidate.rows * candidate.cols;
        });
        source = shape->rounded.narrow(0, (piece.offset - shape->offset) / (piece.rows * piece.cols), piece.count);
      }
      published_.push_back(view_of(entry.compute, piece));
      publish_from_.push_back(source);
    }
  }
  publish();
}

// Muon pieces sorted by block shape, rounded ones first within a shape; AdamW tensors with decay first.
void Optimizer::lay_out() {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Piece*>> by_shape;
  for (Entry& entry : entries_) {
    const std::int64_t elements = entry.compute.numel();
    if (entry.rule.update == Update::adamw) {
      entry.pieces = {{.rows = elements, .period = elements}};
      continue;
    }
    const std::int64_t cols = entry.compute.size(-1);
    const std::int64_t period = entry.rule.period;
    K3_CHECK(period > 0 && elements % (period * cols) == 0, "{}: {} rows are no multiple of {}", entry.name,
             elements / cols, period);
    for (const BlockPart& part : entry.rule.parts)
      entry.pieces.push_back({.count = elements / (period * cols),
                              .first = part.first,
                              .rows = part.rows,
                              .period = period,
                              .cols = cols,
                              .rounded = options_.quantize_experts && entry.rule.routed_expert});
  }
  for (Entry& entry : entries_)
    if (entry.rule.update == Update::muon)
      for (Piece& piece : entry.pieces) by_shape[{piece.rows, piece.cols}].push_back(&piece);
  for (auto& [dims, pieces] : by_shape) {
    std::stable_partition(pieces.begin(), pieces.end(), [](const Piece* piece) { return piece->rounded; });
    BlockShape shape{.offset = muon_elements_, .rows = dims.first, .cols = dims.second};
    for (Piece* piece : pieces) {
      piece->offset = muon_elements_;
      muon_elements_ += piece->elements();
      shape.blocks += piece->count;
      if (piece->rounded) shape.rounded_blocks += piece->count;
    }
    shapes_.push_back(shape);
  }
  for (const bool decay : {true, false}) {
    for (Entry& entry : entries_) {
      if (entry.rule.update != Update::adamw || entry.rule.decay != decay) continue;
      entry.pieces.front().offset = adamw_elements_;
      adamw_elements_ += entry.compute.numel();
    }
    if (decay) adamw_decayed_ = adamw_elements_;
  }
}

void Optimizer::begin_step() {
  muon_gradient_.zero_();
  adamw_gradient_.zero_();
  first_micro_batch_ = true;
}

void Optimizer::accumulate(const std::vector<Tensor>& gradients) {
  at::NoGradGuard no_grad;
  K3_CHECK(gradients.size() == entries_.size(), "{} gradients for {} tensors", gradients.size(), entries_.size());
  std::vector<Tensor> sums, parts;
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    if (!gradients[index].defined()) continue;
    for (const Piece& piece : entries_[index].pieces) {
      sums.push_back(flat_view(flat_of(entries_[index], muon_gradient_, adamw_gradient_), piece));
      parts.push_back(view_of(gradients[index], piece));
    }
  }
  if (first_micro_batch_) {
    at::_foreach_copy_(sums, parts);
  } else {
    for (std::size_t index = 0; index < sums.size(); ++index) sums[index].add_(parts[index]);
  }
  first_micro_batch_ = false;
}

void Optimizer::step(double learning_rate, const Tensor& loss) {
  at::NoGradGuard no_grad;
  const Tensor muon_norm = at::linalg_vector_norm(muon_gradient_), adamw_norm = at::linalg_vector_norm(adamw_gradient_);
  gradient_norm_ = (muon_norm.square() + adamw_norm.square()).sqrt();
  healthy_ = at::logical_and(healthy_, at::logical_and(at::isfinite(loss.detach()), at::isfinite(gradient_norm_)));
  const Tensor on =
      healthy_.to(at::kFloat);  // 1, or 0 once something was not finite: every update below then changes nothing
  ++updates_;

  if (muon_elements_ > 0) {
    const Tensor gradient = at::where(healthy_, muon_gradient_, 0.0);
    muon_momentum_.mul_(1.0 - (1.0 - options_.momentum) * on).add_(gradient);
    const Tensor ahead = at::add(gradient, muon_momentum_, options_.momentum);
    muon_master_.mul_(1.0 - learning_rate * options_.weight_decay * on);
    for (const BlockShape& shape : shapes_) {
      const std::int64_t elements = shape.blocks * shape.rows * shape.cols;
      const Tensor block = ahead.narrow(0, shape.offset, elements).view({shape.blocks, shape.rows, shape.cols});
      const double scale =
          0.2 * std::sqrt(static_cast<double>(std::max(shape.rows, shape.cols)));  // update RMS 0.2, as AdamW's
      muon_master_.narrow(0, shape.offset, elements)
          .view_as(block)
          .sub_(newton_schulz(block, table_).mul_(on * (learning_rate * scale)));
    }
  }
  if (adamw_elements_ > 0) {
    const double rate = learning_rate * options_.adamw_rate_scale;
    Tensor gradient = at::where(healthy_, adamw_gradient_, 0.0);
    if (options_.clip_norm > 0)
      gradient.mul_((options_.clip_norm / (adamw_norm + 1e-6)).clamp_max_(1.0).nan_to_num_(0.0));
    const double correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(updates_));
    const double correction2 = 1.0 - std::pow(options_.beta2, static_cast<double>(updates_));
    adamw_moment1_.mul_(1.0 - (1.0 - options_.beta1) * on).add_(gradient * ((1.0 - options_.beta1) * on));
    adamw_moment2_.mul_(1.0 - (1.0 - options_.beta2) * on).add_(gradient.square_().mul_((1.0 - options_.beta2) * on));
    if (adamw_decayed_ > 0) adamw_master_.narrow(0, 0, adamw_decayed_).mul_(1.0 - rate * options_.weight_decay * on);
    const Tensor denominator = (adamw_moment2_ / correction2).sqrt_().add_(options_.epsilon);
    adamw_master_.sub_((adamw_moment1_ / denominator).mul_(on * (rate / correction1)));
  }
  publish();
}

void Optimizer::publish() {
  for (BlockShape& shape : shapes_) {
    if (shape.rounded_blocks == 0) continue;
    const Tensor master = muon_master_.narrow(0, shape.offset, shape.rounded.numel()).view_as(shape.rounded);
    shape.rounded.copy_(ops::mxfp4_round(master));
  }
  at::_foreach_copy_(published_, publish_from_);
}

std::int64_t Optimizer::update_elements() const { return muon_elements_ + adamw_elements_; }

Tensor Optimizer::assemble(const Tensor& flat, const Entry& entry) const {
  Tensor whole = at::empty(entry.compute.sizes(), flat.options());
  for (const Piece& piece : entry.pieces) view_of(whole, piece).copy_(flat_view(flat, piece));
  return whole;
}

void Optimizer::fill(Tensor& flat, const Entry& entry, const Tensor& value) const {
  K3_CHECK(value.sizes() == entry.compute.sizes(), "{} has another shape than its saved value", entry.name);
  for (const Piece& piece : entry.pieces) flat_view(flat, piece).copy_(view_of(value, piece));
}

std::vector<std::pair<std::string, Tensor>> Optimizer::state() const {
  at::NoGradGuard no_grad;
  std::vector<std::pair<std::string, Tensor>> all;
  for (const Entry& entry : entries_) {
    all.emplace_back("master." + entry.name, assemble(flat_of(entry, muon_master_, adamw_master_), entry));
    if (entry.rule.update == Update::muon) {
      all.emplace_back("momentum." + entry.name, assemble(muon_momentum_, entry));
    } else {
      all.emplace_back("moment1." + entry.name, assemble(adamw_moment1_, entry));
      all.emplace_back("moment2." + entry.name, assemble(adamw_moment2_, entry));
    }
  }
  return all;
}

void Optimizer::load_state(const std::function<Tensor(const std::string& name)>& find, std::int64_t updates) {
  at::NoGradGuard no_grad;
  for (const Entry& entry : entries_) {
    Tensor master = flat_of(entry, muon_master_, adamw_master_);
    fill(master, entry, find("master." + entry.name));
    if (entry.rule.update == Update::muon) {
      fill(muon_momentum_, entry, find("momentum." + entry.name));
    } else {
      fill(adamw_moment1_, entry, find("moment1." + entry.name));
      fill(adamw_moment2_, entry, find("moment2." + entry.name));
    }
  }
  updates_ = updates;
  publish();
}

}  // namespace k3::train

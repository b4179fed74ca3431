// Muon for matrices and AdamW for the rest, on flat fp32 buffers so that a step costs a few dozen launches whatever the
// model's depth.
//   Muon   M = mu M + G;  U = G + mu M
//          W_block = W_block (1 - lr wd) - lr 0.2 sqrt(max(rows, cols)) NewtonSchulz(U_block)
//   AdamW  usual, with bias correction; its gradient is clipped by the global norm of the group
// All blocks of one shape, from all tensors, lie next to each other: one batched Newton-Schulz for each shape. The flat
// buffers hold the fp32 masters; after a step they are copied into the model's tensors, routed experts through MXFP4
// rounding when asked (ops/mxfp4). A loss or gradient that is not finite stops every later update on the device,
// without a read-back: the state stays as it was before. Source: training.md 1.2-1.5.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "train/newton_schulz.h"
#include "train/parameters.h"

namespace k3::train {

struct OptimizerOptions {
  double momentum = 0.95;  // mu
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;  // AdamW
  double clip_norm = 1.0;                            // of the AdamW group; 0: no clipping
  double adamw_rate_scale = 1.0;                     // AdamW's learning rate relative to Muon's
  std::string newton_schulz = "simple5";
  bool quantize_experts = false;
};

struct OptimizedTensor {
  std::string name;
  Tensor compute;  // the model's tensor, a leaf that requires a gradient
  Tensor master;   // fp32 start value, same shape; may be `compute` itself
  ParameterRule rule;
};

class Optimizer {
 public:
  Optimizer(std::vector<OptimizedTensor> tensors, const OptimizerOptions& options);

  const std::vector<Tensor>& leaves() const { return leaves_; }  // what gradients are wanted for, in this order
  const std::string& name(std::size_t leaf) const { return entries_[leaf].name; }

  void begin_step();                                      // gradients to zero
  void accumulate(const std::vector<Tensor>& gradients);  // one per leaf; undefined ones count as zero
  void step(double learning_rate, const Tensor& loss);    // loss: scalar on the device

  const Tensor& healthy() const { return healthy_; }  // bool scalar: no step so far saw a value that is not finite
  const Tensor& gradient_norm() const { return gradient_norm_; }  // fp32 scalar, over all tensors, of the last step
  std::int64_t updates() const { return updates_; }
  std::int64_t update_elements() const;  // number of fp32 masters

  // Everything a resumed run needs, in the tensors' own shapes: "master.NAME", "momentum.NAME" or "moment1.NAME",
  // "moment2.NAME".
  std::vector<std::pair<std::string, Tensor>> state() const;
  void load_state(const std::function<Tensor(const std::string& name)>& find, std::int64_t updates);

 private:
  struct Piece {              // one part of one tensor inside a flat buffer
    std::int64_t offset = 0;  // first element
    std::int64_t count = 1, first = 0, rows = 0, period = 0, cols = 1;
    bool rounded = false;  // through MXFP4
    std::int64_t elements() const { return count * rows * cols; }
  };
  struct Entry {
    std::string name;
    Tensor compute;
    ParameterRule rule;
    std::vector<Piece> pieces;
  };
  struct BlockShape {  // a contiguous run of equal blocks
    std::int64_t offset = 0, blocks = 0, rows = 0, cols = 0;
    std::int64_t rounded_blocks = 0;  // the first ones
    Tensor rounded = {};              // fp32 [rounded_blocks, rows, cols]
  };
  static Tensor view_of(const Tensor& tensor, const Piece& piece);  // [count, rows, cols] of a tensor
  static Tensor flat_view(const Tensor& flat, const Piece& piece);  // the same inside a flat buffer
  Tensor assemble(const Tensor& flat, const Entry& entry) const;
  void fill(Tensor& flat, const Entry& entry, const Tensor& value) const;
  void lay_out();
  void publish();  // masters -> the model's tensors
  const Tensor& flat_of(const Entry& entry, const Tensor& muon, const Tensor& adamw) const;

  OptimizerOptions options_;
  NewtonSchulzTable table_;
  std::vector<Entry> entries_;
  std::vector<Tensor> leaves_;
  std::vector<BlockShape> shapes_;
  std::int64_t muon_elements_ = 0, adamw_elements_ = 0, adamw_decayed_ = 0;
  Tensor muon_master_, muon_momentum_, muon_gradient_;                    // fp32 [muon_elements]
  Tensor adamw_master_, adamw_moment1_, adamw_moment2_, adamw_gradient_;  // fp32 [adamw_elements], decayed ones first
  std::vector<Tensor> published_, publish_from_;                          // views, made once
  Tensor healthy_, gradient_norm_;
  std::int64_t updates_ = 0;
  bool first_micro_batch_ = true;
};

}  // namespace k3::train

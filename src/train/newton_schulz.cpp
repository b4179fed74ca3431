#include "train/newton_schulz.h"

#include "base/error.h"

namespace k3::train {

NewtonSchulzTable newton_schulz_table(const std::string& name) {
  constexpr std::array<double, 3> simple{3.4445, -4.7750, 2.0315};
  if (name == "simple5") return NewtonSchulzTable(5, simple);
  if (name == "quintic5")
    return {{4.0848, -6.8946, 2.9270},
            {3.9505, -6.3029, 2.6377},
            {3.7418, -5.5913, 2.3037},
            {2.8769, -3.1427, 1.2046},
            {2.8366, -3.0525, 1.2012}};
  if (name == "deepseek_v4") {
    NewtonSchulzTable table(8, simple);
    table.insert(table.end(), 2, {2.0, -1.5, 0.5});
    return table;
  }
  throw_user("newton_schulz = \"{}\" is not known; use simple5, quintic5 or deepseek_v4", name);
}

Tensor newton_schulz(const Tensor& batch, const NewtonSchulzTable& table) {
  K3_CHECK(batch.dim() == 3, "Newton-Schulz takes [matrices, rows, cols], got {} dimensions", batch.dim());
  const bool tall = batch.size(1) > batch.size(2);
  Tensor x = tall ? batch.transpose(1, 2) : batch;
  const Tensor norm = at::linalg_vector_norm(x, 2, at::IntArrayRef{1, 2}, /*keepdim=*/true);
  x = (x / norm.clamp_min(1e-7)).contiguous();
  if (x.is_cuda()) x = x.to(at::kBFloat16);
  for (const auto& [a, b, c] : table) {
    const Tensor gram = at::bmm(x, x.transpose(1, 2));
    const Tensor polynomial = at::baddbmm(gram, gram, gram, /*beta=*/b, /*alpha=*/c);
    x = at::baddbmm(x, polynomial, x, /*beta=*/a, /*alpha=*/1.0);
  }
  x = x.to(batch.scalar_type());
  return tall ? x.transpose(1, 2) : x;
}

}  // namespace k3::train

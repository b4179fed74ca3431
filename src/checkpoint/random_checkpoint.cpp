#include "checkpoint/random_checkpoint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/parallel.h"
#include "checkpoint/random_values.h"

namespace k3 {
namespace {

constexpr std::int64_t kBatchBytes = 64 << 20;  // written at once
constexpr std::int64_t kPieceBytes = 1 << 20;   // made by one thread at once; a multiple of 64

enum class Fill { normal, ones, uniform, a_log, dt_bias, codes, scales };

Fill fill_of(const ExpectedTensor& tensor) {
  const std::string& name = tensor.name;
  if (name.ends_with("weight_packed")) return Fill::codes;
  if (name.ends_with("weight_scale")) return Fill::scales;
  if (name.ends_with("A_log")) return Fill::a_log;
  if (name.ends_with("dt_bias")) return Fill::dt_bias;
  if (name.ends_with("conv1d.weight")) return Fill::uniform;
  const std::string_view stem =
      std::string_view(name).substr(0, name.size() - std::min(name.size(), std::string_view(".weight").size()));
  const bool norm = stem.ends_with("norm") || stem.ends_with("norm0") || stem.ends_with("norm1");
  return norm ? Fill::ones : Fill::normal;
}

// ln(e^dt - 1), the inverse of softplus, of a step dt that is log-uniform in 0.001..0.1.
float dt_bias_value(double uniform) {
  const double dt = std::max(std::exp(uniform * (std::log(0.1) - std::log(0.001)) + std::log(0.001)), 1e-4);
  return static_cast<float>(std::log(std::expm1(dt)));
}

float a_log_value(const ModelConfig& config, std::uint64_t key, std::int64_t head) {
  if (head >= config.kda.heads || config.kda.gate_lower_bound)
    return 0.0f;  // padding, or e^A = 1 under the bounded gate
  return static_cast<float>(std::log(1.0 + 15.0 * random_uniform(key, static_cast<std::uint64_t>(head))));
}

// Uniform codes have a root mean square of 2.93 at scale 1. The scale byte is one of two neighbours, so that a reader
// that takes the wrong group's scale is seen; together they come close to initializer_range.
std::uint8_t scale_byte(const ModelConfig& config, std::uint64_t bits) {
  const double exponent =
      config.initializer_range > 0.0 ? std::round(std::log2(config.initializer_range / 2.93)) : -126.0;
  return static_cast<std::uint8_t>(std::clamp(127 + static_cast<int>(exponent) - static_cast<int>(bits & 1), 1, 254));
}

void store(float value, Dtype dtype, std::int64_t at, std::span<std::byte> out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (dtype == Dtype::F32) {
    std::memcpy(out.data() + at * 4, &bits, 4);
  } else {
    const auto half = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(out.data() + at * 2, &half, 2);
  }
}

struct Piece {
  const ExpectedTensor* tensor;
  std::int64_t first_byte, at, bytes;  // of the tensor; of the batch; how many
};

}  // namespace

void fill_random(const ModelConfig& config, const ExpectedTensor& tensor, std::uint64_t seed, std::int64_t first_byte,
                 std::span<std::byte> out) {
  const std::uint64_t key = random_key(seed, tensor.name);
  const std::int64_t width = dtype_bytes(tensor.dtype), count = static_cast<std::int64_t>(out.size()) / width;
  const auto first = static_cast<std::uint64_t>(first_byte / width);
  const auto each = [&](auto value) {
    for (std::int64_t at = 0; at < count; ++at)
      store(value(first + static_cast<std::uint64_t>(at)), tensor.dtype, at, out);
  };
  switch (fill_of(tensor)) {
    case Fill::ones: return each([](std::uint64_t) { return 1.0f; });
    case Fill::a_log:
      return each([&](std::uint64_t at) { return a_log_value(config, key, static_cast<std::int64_t>(at)); });
    case Fill::dt_bias: return each([&](std::uint64_t at) { return dt_bias_value(random_uniform(key, at)); });
    case Fill::uniform: {
      const double bound = 1.0 / std::sqrt(static_cast<double>(config.kda.conv_taps));
      return each([&](std::uint64_t at) { return static_cast<float>((2.0 * random_uniform(key, at) - 1.0) * bound); });
    }
    case Fill::scales:
      for (std::int64_t at = 0; at < count; ++at)
        out[static_cast<std::size_t>(at)] =
            std::byte{scale_byte(config, random_bits(key, first + static_cast<std::uint64_t>(at)))};
      return;
    case Fill::codes:
      for (std::int64_t at = 0; at < count; at += 8) {
        const std::uint64_t bits = random_bits(key, (first + static_cast<std::uint64_t>(at)) / 8);
        std::memcpy(out.data() + at, &bits, static_cast<std::size_t>(std::min<std::int64_t>(8, count - at)));
      }
      return;
    case Fill::normal:
      if (tensor.dtype == Dtype::F32)
        return random_normal(key, first, config.initializer_range,
                             {reinterpret_cast<float*>(out.data()), static_cast<std::size_t>(count)});
      return random_normal_bf16(key, first, config.initializer_range,
                                {reinterpret_cast<std::uint16_t*>(out.data()), static_cast<std::size_t>(count)});
  }
}

void write_random_checkpoint(const ModelConfig& config, const std::filesystem::path& folder,
                             const RandomCheckpointOptions& options) {
  const std::vector<ExpectedTensor> tensors = expected_tensors(config);
  std::vector<TensorSpec> specs;
  std::int64_t total = 0, done = 0;
  for (const ExpectedTensor& tensor : tensors) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    total += specs.back().bytes();
  }
  AtomicDirectory target(folder);
  write_file_atomic(target.path() / "config.json", write_config(config));
  CheckpointWriter writer(target.path(), specs, options.max_shard_bytes);
  std::vector<std::byte> batch(static_cast<std::size_t>(std::min(kBatchBytes, total + kPieceBytes)));
  std::vector<Piece> pieces;
  std::int64_t used = 0;
  const auto flush = [&] {
    run_tasks(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t index) {
      const Piece& piece = pieces[static_cast<std::size_t>(index)];
      fill_random(config, *piece.tensor, options.seed, piece.first_byte,
                  std::span(batch).subspan(static_cast<std::size_t>(piece.at), static_cast<std::size_t>(piece.bytes)));
    });
    for (const Piece& piece : pieces)
      writer.write(std::span(batch).subspan(static_cast<std::size_t>(piece.at), static_cast<std::size_t>(piece.bytes)));
    done += used;
    if (options.progress) options.progress(done, total);
    pieces.clear();
    used = 0;
  };
  // Places in the batch are multiples of 64, so that a piece can be filled as an array of its type.
  std::int64_t place = 0;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    for (std::int64_t first = 0, bytes = specs[index].bytes(); first < bytes; first += kPieceBytes) {
      const std::int64_t size = std::min(kPieceBytes, bytes - first);
      if (place + size > static_cast<std::int64_t>(batch.size())) {
        flush();
        place = 0;
      }
      pieces.push_back({&tensors[index], first, place, size});
      used += size;
      place += (size + 63) / 64 * 64;
    }
  }
  flush();
  writer.finish();
  target.commit();
}

}  // namespace k3

// Inputs recorded from the bundled model (tests/data/kda/README.md): a paragraph and a conversation at layer 0 (four
// heads of 64) and at the slowest head of layer 1, through the step and the chunk kernels, and with two heads (or one
// twice) side by side as one of 128 through all of them, the prefill too. Run from the root of the repository.
#include <fstream>

#include "kernels_cuda/layer_cases.h"
#include "kernels_cuda/test.h"

namespace k3::cuda::testing {
namespace {

constexpr const char* kFile = "tests/data/kda/nano.bin";

struct Recorded {
  StepCase c;
  Inputs in;
};

std::vector<Recorded> read_recorded() {
  std::ifstream file(kFile, std::ios::binary);
  if (!file)
    return std::printf("    %s is missing: run from the root of the repository\n", kFile), std::vector<Recorded>{};
  const auto integer = [&] {
    std::int32_t x = 0;
    return file.read(reinterpret_cast<char*>(&x), 4), x;
  };
  const auto real = [&] {
    float x = 0;
    return file.read(reinterpret_cast<char*>(&x), 4), x;
  };
  const auto half = [&](std::size_t count) {
    std::vector<std::uint16_t> bits(count);
    file.read(reinterpret_cast<char*>(bits.data()), static_cast<std::streamsize>(2 * count));
    std::vector<double> out;
    for (std::uint16_t x : bits) {
      const std::uint32_t wide = static_cast<std::uint32_t>(x) << 16;
      float value;
      std::memcpy(&value, &wide, 4);
      out.push_back(value);
    }
    return out;
  };
  const auto wide = [&](std::size_t count) {
    std::vector<float> values(count);
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(4 * count));
    return widen(values);
  };
  char magic[8] = {};
  file.read(magic, 8);
  std::vector<Recorded> all(std::memcmp(magic, "K3KDA\0\0\1", 8) ? 0 : integer());
  for (Recorded& r : all) {
    const int layer = integer(), rows = integer(), tokens = integer();
    r.c.name = "layer " + std::to_string(layer), r.c.heads = integer(), r.c.dim = integer();
    r.c.type = Type::bf16, r.c.lower_bound = real(), r.c.slots = rows + 1;
    const float eps = real();
    if (eps != 1e-5f) return std::printf("    norm eps %g is not the oracle's\n", eps), std::vector<Recorded>{};
    r.in.starts.assign(1, integer());
    for (int row = 0; row < rows; ++row) {
      r.in.starts.push_back(integer());
      r.c.lengths.push_back(r.in.starts[row + 1] - r.in.starts[row]), r.c.slot_of.push_back(rows - row);
    }
    const std::size_t H = r.c.heads, D = r.c.dim, width = H * D;
    r.in.qkv = half(3 * tokens * width), r.in.z = half(tokens * width), r.in.gate = half(tokens * width);
    r.in.b = half(tokens * H);
    r.in.taps = wide(12 * width), r.in.a_log = wide(H), r.in.bias = wide(width), r.in.norm = wide(D);
    r.in.state.assign(r.c.slots * width * D, 0.0), r.in.window.assign(r.c.slots * 9 * width, 0.0);
  }
  if (!file || file.peek() != EOF) return std::printf("    %s has a wrong length\n", kFile), std::vector<Recorded>{};
  return all;
}

// Heads 2 h and 2 h + 1 as one head of twice the size, with the beta and the speed of the first.
Recorded join_heads(const Recorded& r) {
  const int H = r.c.heads, D = r.c.dim, joined = (H + 1) / 2;
  // [outer, H, inner] to [outer, joined, 2 inner]; inner: a head's values of one thing, of all channels.
  const auto join = [&](const std::vector<double>& x, std::size_t inner) {
    std::vector<double> out;
    for (std::size_t outer = 0; outer < x.size() / (H * inner); ++outer)
      for (int h = 0; h < joined; ++h)
        for (int part = 0; part < 2; ++part) {
          const std::size_t head = std::min(2 * h + part, H - 1);
          const auto from = x.begin() + static_cast<std::ptrdiff_t>((outer * H + head) * inner);
          out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(inner));
        }
    return out;
  };
  const auto first = [&](const std::vector<double>& x) {
    std::vector<double> out;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (i % H % 2 == 0) out.push_back(x[i]);
    return out;
  };
  Recorded out{r.c, r.in};
  out.c.heads = joined, out.c.dim = 2 * D;
  for (std::vector<double> Inputs::*x : {&Inputs::qkv, &Inputs::z, &Inputs::gate, &Inputs::bias, &Inputs::window})
    out.in.*x = join(r.in.*x, D);
  out.in.taps = join(r.in.taps, 4 * D);
  out.in.b = first(r.in.b), out.in.a_log = first(r.in.a_log);
  out.in.norm.insert(out.in.norm.end(), r.in.norm.begin(), r.in.norm.end());
  out.in.state.assign(static_cast<std::size_t>(r.c.slots) * joined * 4 * D * D, 0.0);
  return out;
}

// The gates are really spread: both fast and slow channels, so that the file tests what it should.
bool spread_case() {
  const std::vector<Recorded> all = read_recorded();
  bool good = all.size() == 2;
  for (const Recorded& r : all) {
    const kda::oracle::Problem p = chunk_problem(r.c, r.in);
    double least = 1, most = 0, sum = 0;
    std::size_t slow = 0;
    for (double g : p.g) {
      const double decay = std::exp(g);
      least = std::min(least, decay), most = std::max(most, decay), sum += decay, slow += decay > 0.998;
    }
    const double count = static_cast<double>(p.g.size()), mean = sum / count;
    std::printf("    %s: %d tokens, %d heads, decay %.5f .. %.5f .. %.7f, %.1f %% above 0.998\n", r.c.name.c_str(),
                p.tokens(), p.heads, least, mean, most, 100 * static_cast<double>(slow) / count);
    good = good && least < 0.1 && most > 0.9999 && mean > 0.5 && mean < 0.95 && slow > p.g.size() / 100;
  }
  return good;
}

bool recorded_step_case() {
  const std::vector<Recorded> all = read_recorded();
  bool good = !all.empty();
  for (const Recorded& r : all) good = check_layer_step(r.c, r.in, {}) && good;
  return good;
}

// Token by token: as many calls as the longest sequence has tokens, all of one token a row; a row that has ended stays
// empty. State, window and outputs equal those of one call with every token, bit for bit (step.h).
bool recorded_decode_case() {
  const std::vector<Recorded> all = read_recorded();
  bool good = !all.empty();
  for (const Recorded& r : all) {
    Device whole(r.c, r.in), steps(r.c, r.in);
    REQUIRE_CUDA(kda::step(whole.a, nullptr));
    const int longest = whole.a.longest;
    steps.a.longest = 1;
    std::vector<Buffer> starts;
    // A call's rows own neighbouring tokens, so every sequence is called on its own.
    for (std::size_t row = 0; row < r.c.lengths.size(); ++row)
      for (int t = 0; t < std::min(longest, r.c.lengths[row]); ++t) {
        const int token = r.in.starts[row] + t;
        starts.push_back(upload(std::vector<int>{token, token + 1}));
        kda::StepArguments a = steps.a;
        a.rows = 1, a.starts = starts.back().as<std::int32_t>(), a.slots = a.slots + row;
        REQUIRE_CUDA(kda::step(a, nullptr));
      }
    synchronize();
    const bool same = download<char>(whole.y) == download<char>(steps.y) &&
                      download<char>(whole.state) == download<char>(steps.state) &&
                      download<char>(whole.window) == download<char>(steps.window);
    if (!same) std::printf("    FAIL %s: decoding differs from one call\n", r.c.name.c_str());
    good = good && same;
  }
  return good;
}

bool recorded_chunk_case(Type type) {
  const std::vector<Recorded> all = read_recorded();
  bool good = !all.empty();
  for (Recorded r : all) {
    r.c.type = type;
    LayerLimits limits;
    if (type == Type::fp32) limits.wide = limits.narrow = limits.dv = 3e-5, limits.dbeta = 6e-5;
    good = check_layer_chunk(r.c, r.in, limits) && good;
  }
  return good;
}

bool recorded_joined_case() {
  const std::vector<Recorded> all = read_recorded();
  bool good = !all.empty();
  for (const Recorded& r : all) {
    const Recorded joined = join_heads(r);
    good = check_layer(joined.c, joined.in) && good;
  }
  return good;
}

}  // namespace

void add_recorded_tests(std::vector<Test>& all) {
  all.push_back({"recorded-spread", true, spread_case});
  all.push_back({"recorded-step", false, recorded_step_case});
  all.push_back({"recorded-decode", false, recorded_decode_case});
  all.push_back({"recorded-joined", true, recorded_joined_case});
  all.push_back({"recorded-chunk-fp32", false, [] { return recorded_chunk_case(Type::fp32); }});
  all.push_back({"recorded-chunk-bf16", false, [] { return recorded_chunk_case(Type::bf16); }});
}

}  // namespace k3::cuda::testing

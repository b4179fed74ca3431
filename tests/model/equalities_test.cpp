// One function, many ways to call it: split prefill, token by token, batches, saved and restored states, packed training documents.
#include <gtest/gtest.h>

#include <random>

#include "model/model.h"
#include "support/files.h"
#include "support/tensors.h"

namespace k3 {
namespace {

using test::expect_close;

const char* const kFolders[] = {"k3-tiny", "k3-tiny-softplus", "kimi-linear-tiny"};
// fp32; different splits take different forms (recurrent, chunk, absorbed, expanded), so equality is up to rounding. Worst seen: 4e-6.
constexpr double kLimit = 2e-5;

Model load(const std::string& name, at::ScalarType type = at::kFloat) { return load_model(test::data("golden/" + name), {type, at::kCPU, true}); }

std::vector<std::int64_t> random_ids(std::int64_t count, std::int64_t vocab, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> ids(count);
  for (auto& id : ids) id = static_cast<std::int64_t>(random() % vocab);
  return ids;
}

// Feeds ids in pieces of the given sizes; returns the logits of every position.
Tensor feed(const Model& model, StatePool& pool, std::int64_t slot, const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& pieces) {
  const at::NoGradGuard no_grad;
  std::vector<Tensor> all;
  std::int64_t done = 0;
  for (const std::int64_t piece : pieces) {
    const std::span<const std::int64_t> part(ids.data() + done, static_cast<std::size_t>(piece));
    all.push_back(logits(model, forward(model, continue_row(part, pool.lengths[slot], slot, at::kCPU), &pool)));
    done += piece;
  }
  return at::cat(all);
}

class Equalities : public testing::TestWithParam<const char*> {};

TEST_P(Equalities, AnySplitOfThePrefill) {
  const Model model = load(GetParam());
  const auto ids = random_ids(150, model.config.vocab, 1);
  StatePool pool = StatePool::make(model.config, 5, 192, at::kCPU, at::kFloat);
  const Tensor whole = feed(model, pool, 0, ids, {150});
  std::vector<std::int64_t> odd = {1, 63, 2, 64, 9, 11};
  expect_close(feed(model, pool, 1, ids, odd), whole, kLimit, "odd pieces");
  expect_close(feed(model, pool, 2, ids, std::vector<std::int64_t>(150, 1)), whole, kLimit, "token by token");
  expect_close(feed(model, pool, 3, ids, {100, 50}), whole, kLimit, "two pieces");
  for (const std::int64_t slot : {1, 2, 3}) {
    expect_close(save_state(pool, slot).kda_state, save_state(pool, 0).kda_state, kLimit, "state");
    expect_close(save_state(pool, slot).latent, save_state(pool, 0).latent, kLimit, "latent");
  }
}

TEST_P(Equalities, BatchEqualsEachAlone) {
  const at::NoGradGuard no_grad;
  const Model model = load(GetParam());
  const std::vector<std::int64_t> lengths = {70, 1, 9, 130};
  StatePool together = StatePool::make(model.config, 4, 192, at::kCPU, at::kFloat), alone = StatePool::make(model.config, 4, 192, at::kCPU, at::kFloat);
  // First a ragged prefill, then steps in which every row has one token, then a mixed batch of decode rows and prefill chunks.
  for (const std::vector<std::int64_t>& take : {lengths, {1, 1, 1, 1}, {1, 20, 1, 5}}) {
    std::vector<Tensor> singles;
    std::vector<std::int64_t> ids;
    ForwardBatch batch;
    for (std::int64_t row = 0; row < 4; ++row) {
      const auto part = random_ids(take[row], model.config.vocab, 10 + row);
      ids.insert(ids.end(), part.begin(), part.end());
      batch.plan.starts.push_back(batch.plan.starts.back() + take[row]);
      batch.plan.contexts.push_back(together.lengths[row]);
      batch.plan.slots.push_back(row);
      singles.push_back(logits(model, forward(model, continue_row(part, alone.lengths[row], row, at::kCPU), &alone)));
    }
    batch.ids = at::tensor(ids, at::kLong);
    expect_close(logits(model, forward(model, batch, &together)), at::cat(singles), kLimit, "batch");
  }
}

TEST_P(Equalities, SaveRestoreContinueIsBitEqual) {
  const Model model = load(GetParam());
  const auto ids = random_ids(100, model.config.vocab, 2);
  StatePool pool = StatePool::make(model.config, 2, 128, at::kCPU, at::kFloat);
  feed(model, pool, 0, ids, {80});
  const SequenceState saved = save_state(pool, 0);
  const std::vector<std::int64_t> rest(ids.begin() + 80, ids.end());
  const Tensor straight = feed(model, pool, 0, rest, {13, 7});
  restore_state(pool, 1, saved);
  EXPECT_TRUE(at::equal(feed(model, pool, 1, rest, {13, 7}), straight));
  StatePool other = StatePool::make(model.config, 3, 640, at::kCPU, at::kFloat);
  feed(model, other, 0, ids, {70});  // so that the restored pages are not the first of the pool
  restore_state(other, 2, saved);
  EXPECT_TRUE(at::equal(feed(model, other, 2, rest, {13, 7}), straight));
}

TEST_P(Equalities, PagesNeedNotBeConsecutive) {
  const Model model = load(GetParam());
  const auto ids = random_ids(200, model.config.vocab, 3);
  StatePool pool = StatePool::make(model.config, 2, 256, at::kCPU, at::kFloat);
  const Tensor want = feed(model, pool, 0, ids, {200});
  pool.clear(0);
  pool.clear(1);
  std::reverse(pool.free_pages.begin(), pool.free_pages.end());
  expect_close(feed(model, pool, 1, ids, {64, 1, 135}), want, kLimit, "scattered pages");
}

TEST_P(Equalities, PackedDocumentsEqualSeparateOnes) {
  const at::NoGradGuard no_grad;
  const Model model = load(GetParam());
  std::vector<std::vector<std::int64_t>> documents;
  for (const std::int64_t length : {3, 70, 1, 64, 129}) documents.push_back(random_ids(length, model.config.vocab, 20 + static_cast<unsigned>(length)));
  const Tensor packed = logits(model, forward(model, pack_documents(documents, at::kCPU)));
  std::vector<Tensor> separate;
  for (const auto& document : documents) separate.push_back(logits(model, forward(model, pack_documents({&document, 1}, at::kCPU))));
  expect_close(packed, at::cat(separate), kLimit, "packed");
}

TEST_P(Equalities, SavedCheckpointLoadsBitEqual) {
  const at::NoGradGuard no_grad;
  const Model model = load_model(test::data(std::string("golden/") + GetParam()), {at::kBFloat16, at::kCPU, true});
  const test::TempDir folder;
  save_model(model, folder / "copy");
  const Model copy = load_model(folder / "copy", {at::kBFloat16, at::kCPU, true});
  const ForwardBatch batch = pack_documents(std::vector<std::vector<std::int64_t>>{random_ids(40, model.config.vocab, 4)}, at::kCPU);
  EXPECT_TRUE(at::equal(logits(model, forward(model, batch)), logits(copy, forward(copy, batch))));
}

INSTANTIATE_TEST_SUITE_P(Folders, Equalities, testing::ValuesIn(kFolders), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Every parameter of a small K3 gets the gradient that central differences show.
TEST(SlowModelGradients, EveryParameterOfASmallK3) {
  at::manual_seed(5);
  Model model = load_model(test::data("golden/k3-tiny"), {at::kDouble, at::kCPU, false});
  const auto ids = random_ids(23, model.config.vocab, 6);
  const ForwardBatch batch = pack_documents(std::vector<std::vector<std::int64_t>>{{ids.begin(), ids.begin() + 16}, {ids.begin() + 16, ids.end()}}, at::kCPU);
  Observer observer;  // routing is piecewise constant: hold it while differences are taken
  std::vector<Tensor> choices;
  observer.after_router = [&](std::int64_t, const ops::Routing& routing) { choices.push_back(routing.experts); };
  const Tensor weights = at::randn({23, model.config.hidden}, at::kDouble);
  const auto loss = [&](const Observer* o) { return (forward(model, batch, nullptr, o) * weights).sum(); };
  { const at::NoGradGuard no_grad; loss(&observer); }
  std::size_t next = 0;
  Observer forced;
  forced.forced_experts = [&](std::int64_t) { return std::optional<Tensor>(choices[next++ % choices.size()]); };
  auto parameters = named_tensors(model);
  for (auto& [name, tensor] : parameters) tensor->set_requires_grad(true);
  loss(&forced).backward();
  const at::NoGradGuard no_grad;
  int checked = 0;
  for (auto& [name, tensor] : parameters) {
    // Unused by design: the head (hidden is differentiated), the selection bias, and the mix of the first sublayer.
    if (!tensor->grad().defined()) {
      EXPECT_TRUE(name.find("lm_head") != std::string::npos || name.find("e_score_correction_bias") != std::string::npos ||
                  name.find("layers.0.self_attention_res") != std::string::npos) << name << " has no gradient";
      continue;
    }
    const Tensor direction = at::randn(tensor->sizes(), at::kDouble) * tensor->abs().mean();
    const double step = 1e-7, analytic = (tensor->grad() * direction).sum().item<double>();
    tensor->add_(direction, step);
    const double up = loss(&forced).item<double>();
    tensor->add_(direction, -2 * step);
    const double down = loss(&forced).item<double>();
    tensor->add_(direction, step);
    const double numeric = (up - down) / (2 * step);
    const double scale = std::max({std::abs(numeric), std::abs(analytic), 1e-2});
    EXPECT_LE(std::abs(numeric - analytic) / scale, 1e-4) << name << ": numeric " << numeric << " analytic " << analytic;
    ++checked;
  }
  EXPECT_GT(checked, 100);
}

TEST(StatePool, FullPoolIsRefusedWithAHint) {
  const Model model = load("k3-tiny");
  StatePool pool = StatePool::make(model.config, 1, 64, at::kCPU, at::kFloat);
  test::expect_user_error([&] { feed(model, pool, 0, random_ids(65, 512, 1), {65}); }, {"65 tokens", "64"});
}

}  // namespace
}  // namespace k3

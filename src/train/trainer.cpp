#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>

#include "base/error.h"
#include "train/flops.h"
#include "train/loader.h"
#include "train/metrics.h"
#include "train/run_state.h"
#include "train/schedule.h"
#include "train/trainee.h"
#include "train/validation.h"

namespace k3::train {
namespace {

namespace fs = std::filesystem;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

at::ScalarType dtype_of(const Recipe& recipe, at::Device device) {
  if (recipe.dtype.empty()) return device.is_cuda() ? at::kBFloat16 : at::kFloat;
  return recipe.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

std::string short_time(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}m{:02}s", whole / 60, whole % 60);
}

// A step that was queued but whose numbers have not been read back.
struct PendingStep {
  std::int64_t step = 0;  // steps done once this one is
  StepPlace place;
  Cursor before, after;  // place in the data
  double learning_rate = 0, bytes = 0, flops = 0;
  std::int64_t tokens = 0, counted = 0;
  Tensor numbers;  // fp32 [4] on the device: loss, gradient norm, MaxVio, healthy
};

class Run {
 public:
  Run(const Recipe& recipe, const TrainOptions& options);
  TrainEnd go();

 private:
  std::shared_ptr<const Shard> shard_of(const SourceRecipe& source);
  void begin_stage(std::size_t stage, const Cursor& cursor);
  void queue_step(std::int64_t step);
  bool read_back();  // false: a step was not finite
  void checkpoint();
  void validate_all();
  TrainEnd stop_not_finite(const PendingStep& bad);
  void say(const std::string& line) const { options_.print(line); }

  const Recipe& recipe_;
  const TrainOptions& options_;
  const double started_ = now_seconds();
  Tokenizer tokenizer_;
  std::vector<std::int32_t> byte_lengths_;
  std::map<std::string, std::shared_ptr<const Shard>> shards_;
  std::vector<ValidationSet> validation_;
  Trainee trainee_;
  std::vector<std::pair<std::string, Tensor>> router_biases_;
  double matrix_parameters_ = 0, peak_flops_ = 0;
  RunState state_;  // of the last step that was read back and found good
  double seconds_before_ = 0;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Prefetcher> prefetcher_;
  std::size_t stage_ = 0;
  Cursor cursor_;  // after the last queued step
  std::deque<PendingStep> pending_;
  double window_started_ = 0;
};

std::shared_ptr<const Shard> Run::shard_of(const SourceRecipe& source) {
  const fs::path folder = recipe_.shards.empty() ? options_.run.parent_path() / "shards" : fs::path(recipe_.shards);
  const double started = now_seconds();
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const fs::path file = make_shard(source, recipe_.tokenizer, tokenizer_, folder, recipe_.seed, threads);
  auto shard = std::make_shared<const Shard>(file);
  if (!source.heldout) {
    const std::string name = file.filename().string();
    const auto before = state_.shards.find(source.name);
    if (state_.step > 0 && before != state_.shards.end() && before->second != name)
      throw_user(
          "{}: the data of source {} has changed since the checkpoint of step {}; bring it back or start a new run "
          "with --out",
          options_.run.string(), source.name, state_.step);
    state_.shards[source.name] = name;
  }
  say(fmt::format("data: {:<16} {:>9} documents {:>12} tokens  {:.1f} s  {}", source.name, shard->documents(),
                  shard->tokens(), now_seconds() - started, file.string()));
  return shard;
}

Run::Run(const Recipe& recipe, const TrainOptions& options)
    : recipe_(recipe),
      options_(options),
      tokenizer_(Tokenizer::load(recipe.tokenizer)),
      byte_lengths_(token_byte_lengths(tokenizer_)) {
  std::optional<fs::path> last = latest_checkpoint(options.run);
  if (last && !options.resume)
    throw_user("{}: holds a run already; add --resume to go on with it or choose another --out", options.run.string());
  const at::ScalarType dtype = dtype_of(recipe, options.device);
  state_.dtype = dtype == at::kBFloat16 ? "bfloat16" : "float32";
  state_.recipe = recipe.keys;
  if (last) {
    RunState saved = read_run_state(*last);
    check_same_recipe(saved, recipe.keys, *last);
    if (saved.dtype != state_.dtype)
      throw_user("{}: was trained in {}, now {} is asked for; give --dtype {}", last->string(), saved.dtype,
                 state_.dtype, saved.dtype);
    state_ = std::move(saved);
  } else if (options.resume) {
    say(fmt::format("resume: {} holds no checkpoint, the run begins at step 0", options.run.string()));
  }
  if (options.device.is_cuda()) at::globalContext().setAllowTF32CuBLAS(recipe.tf32);
  trainee_ = make_trainee(recipe, options.device, dtype, tokenizer_.vocab());
  router_biases_ = trainee_.router_biases;
  if (last) load_run(*last, state_, *trainee_.optimizer, router_biases_);
  seconds_before_ = state_.seconds;
  matrix_parameters_ = matrix_parameters(trainee_.model);
  peak_flops_ = recipe.peak_flops > 0 ? recipe.peak_flops : known_peak_flops(options.device);
  say(fmt::format(
      "model: {:.2f} M parameters, {:.2f} M active in matrices; {} on {}{}{}",
      static_cast<double>(trainee_.optimizer->update_elements()) / 1e6, matrix_parameters_ / 1e6, state_.dtype,
      options.device.str(),
      options.device.is_cuda() ? (recipe.tf32 ? ", float32 products in TF32" : ", float32 products in float32") : "",
      recipe.quantize_experts ? ", experts through MXFP4" : ""));

  for (const SourceRecipe& source : recipe.data)
    if (std::any_of(recipe.stages.begin(), recipe.stages.end(), [&](const StageRecipe& stage) {
          return std::any_of(stage.mixture.begin(), stage.mixture.end(),
                             [&](const auto& part) { return part.first == source.name; });
        }))
      shards_[source.name] = shard_of(source);
  std::int64_t context = 0, micro_batch = 0;
  for (const StageRecipe& stage : recipe.stages) {
    context = std::max(context, stage.context);
    micro_batch = std::max(micro_batch, stage.micro_batch_tokens);
  }
  for (const SourceRecipe& source : recipe.validation)
    validation_.push_back(make_validation_set(source.name, shard_of(source), recipe.validation_tokens, context,
                                              micro_batch, byte_lengths_));
  metrics_ = std::make_unique<MetricsFile>(options.run, state_.step);
}

void Run::begin_stage(std::size_t stage, const Cursor& cursor) {
  const StageRecipe& recipe = recipe_.stages[stage];
  prefetcher_.reset();
  std::vector<MixtureSource> sources;
  for (const auto& [name, share] : recipe.mixture) sources.push_back({name, shards_.at(name), share});
  loader_ = std::make_unique<Loader>(std::move(sources), recipe.context, recipe.micro_batch_tokens,
                                     recipe_.seed + stage * 7919);
  for (std::size_t source = 0; source < recipe.mixture.size(); ++source)
    if (loader_->left_out(source) > 0)
      say(fmt::format("stage {}: {} of {} samples of {} are longer than the context of {} tokens and are left out",
                      recipe.name, loader_->left_out(source), loader_->left_out(source) + loader_->samples(source),
                      recipe.mixture[source].first, recipe.context));
  if (!cursor.empty()) loader_->seek(cursor);
  cursor_ = cursor.empty() ? Cursor(recipe.mixture.size()) : cursor;
  prefetcher_ = std::make_unique<Prefetcher>(*loader_);
  stage_ = stage;
}

void Run::queue_step(std::int64_t step) {
  PendingStep pending;
  pending.step = step + 1;
  pending.place = place_of(recipe_, step);
  if (!prefetcher_ || pending.place.stage != stage_) begin_stage(pending.place.stage, {});
  const StageRecipe& stage = recipe_.stages[stage_];
  pending.before = cursor_;
  pending.learning_rate = learning_rate(recipe_, step);
  std::vector<MicroBatch> batches;
  for (std::int64_t micro = 0; micro < stage.micro_batches(); ++micro) {
    batches.push_back(prefetcher_->next());
    const MicroBatch& batch = batches.back();
    pending.counted += batch.counted;
    pending.tokens += static_cast<std::int64_t>(batch.ids.size());
    pending.bytes += counted_bytes(batch, byte_lengths_);
    pending.flops += step_flops(trainee_.model.config, matrix_parameters_, batch.row_starts);
  }
  cursor_ = pending.after = batches.back().after;

  Optimizer& optimizer = *trainee_.optimizer;
  optimizer.begin_step();
  if (trainee_.balancing) trainee_.balancing->begin_step();
  const double scale = 1.0 / static_cast<double>(std::max<std::int64_t>(1, pending.counted));
  Tensor loss;
  for (const MicroBatch& batch : batches) {
    const Tensor part = trainee_.train_micro_batch(to_device(batch, options_.device), scale);
    loss = loss.defined() ? loss + part : part;
  }
  optimizer.step(pending.learning_rate, loss);
  Tensor violation = at::full({}, -1.0, loss.options());
  if (trainee_.balancing) {
    trainee_.balancing->end_step(optimizer.healthy());
    violation = trainee_.balancing->max_violation();
  }
  pending.numbers = at::stack({loss, optimizer.gradient_norm(), violation, optimizer.healthy().to(at::kFloat)});
  pending_.push_back(std::move(pending));
}

bool Run::read_back() {
  if (pending_.empty()) return true;
  std::vector<Tensor> rows;
  for (const PendingStep& pending : pending_) rows.push_back(pending.numbers);
  const Tensor numbers = at::stack(rows).cpu();
  const double elapsed = now_seconds() - window_started_;
  double tokens = 0, flops = 0;
  for (const PendingStep& pending : pending_) {
    tokens += static_cast<double>(pending.tokens);
    flops += pending.flops;
  }
  StepMetrics metrics;
  for (std::size_t row = 0; !pending_.empty(); ++row) {
    const PendingStep& pending = pending_.front();
    const float* number = numbers[static_cast<std::int64_t>(row)].const_data_ptr<float>();
    if (number[3] == 0) return false;
    state_.step = pending.step;
    state_.tokens += pending.tokens;
    state_.cursor = pending.after;
    state_.seconds = seconds_before_ + now_seconds() - started_;
    metrics.step = pending.step;
    metrics.stage = recipe_.stages[pending.place.stage].name;
    metrics.loss = number[0];
    metrics.bits_per_byte =
        bits_per_byte(static_cast<double>(number[0]) * static_cast<double>(pending.counted), pending.bytes);
    metrics.learning_rate = pending.learning_rate;
    metrics.gradient_norm = number[1];
    metrics.max_violation = number[2];
    metrics.tokens = state_.tokens;
    metrics.tokens_per_second = tokens / elapsed;
    metrics.seconds = state_.seconds;
    metrics.peak_share = peak_flops_ > 0 ? flops / elapsed / peak_flops_ : 0;
    metrics_->add(metrics);
    pending_.pop_front();
  }
  std::int64_t tokens_left = 0;
  for (std::int64_t stage = 0, first = 0; stage < static_cast<std::int64_t>(recipe_.stages.size()); ++stage) {
    const StageRecipe& recipe = recipe_.stages[static_cast<std::size_t>(stage)];
    tokens_left +=
        std::clamp<std::int64_t>(first + recipe.steps() - state_.step, 0, recipe.steps()) * recipe.batch_tokens;
    first += recipe.steps();
  }
  const std::string balance = metrics.max_violation >= 0 ? fmt::format("  maxvio {:.2f}", metrics.max_violation) : "";
  const std::string share = metrics.peak_share > 0 ? fmt::format("  {:.1f}% of peak", 100 * metrics.peak_share) : "";
  say(fmt::format("step {}/{} {}  loss {:.4f}  {:.3f} bits/byte  lr {:.2e}  grad {:.3f}{}  {:.0f} tok/s{}  left {}",
                  metrics.step, recipe_.steps(), metrics.stage, metrics.loss, metrics.bits_per_byte,
                  metrics.learning_rate, metrics.gradient_norm, balance, metrics.tokens_per_second, share,
                  short_time(static_cast<double>(tokens_left) / metrics.tokens_per_second)));
  window_started_ = now_seconds();
  return true;
}

void Run::checkpoint() {
  RunState state = state_;
  // At a stage's end the next stage begins with fresh cursors.
  if (state.step == recipe_.steps() || place_of(recipe_, state.step).step == 0) state.cursor.clear();
  const fs::path folder = save_run(options_.run, state, trainee_.model, *trainee_.optimizer, router_biases_,
                                   recipe_.tokenizer, recipe_.keep_checkpoints);
  say(fmt::format("checkpoint: {}", folder.string()));
  window_started_ = now_seconds();
}

void Run::validate_all() {
  for (const ValidationSet& set : validation_) {
    const ValidationResult result = validate(trainee_, set);
    metrics_->add(ValidationMetrics{state_.step, set.name, result.loss, result.bits_per_byte});
    say(fmt::format("validation {}: loss {:.4f}  {:.3f} bits/byte  ({} tokens)", set.name, result.loss,
                    result.bits_per_byte, set.counted));
  }
  window_started_ = now_seconds();
}

// The device has frozen weights, optimiser and biases as they were before the bad step.
TrainEnd Run::stop_not_finite(const PendingStep& bad) {
  begin_stage(bad.place.stage, bad.before);
  std::vector<MicroBatch> batches;
  for (std::int64_t micro = 0; micro < recipe_.stages[stage_].micro_batches(); ++micro)
    batches.push_back(prefetcher_->next());
  const std::string name = first_bad_tensor(trainee_, batches);
  checkpoint();
  say(
      fmt::format("stopped: step {} is not finite; the first bad tensor is {}; lower the learning rate or look at the "
                  "data of that step, then --resume",
                  bad.step, name));
  return TrainEnd::not_finite;
}

TrainEnd Run::go() {
  const std::int64_t steps = recipe_.steps();
  if (state_.step >= steps) {
    say(fmt::format("{}: all {} steps are done", options_.run.string(), steps));
    return TrainEnd::finished;
  }
  begin_stage(place_of(recipe_, state_.step).stage, state_.cursor);
  if (state_.step > 0) say(fmt::format("resume: at step {} of {}", state_.step, steps));
  window_started_ = now_seconds();
  const auto every = [](std::int64_t period, std::int64_t step) { return period > 0 && step % period == 0; };
  for (std::int64_t step = state_.step; step < steps; ++step) {
    queue_step(step);
    const std::int64_t done = step + 1;
    const bool interrupted = options_.interrupted();
    const bool late = options_.max_seconds && now_seconds() - started_ >= *options_.max_seconds && done < steps;
    const bool save = done == steps || interrupted || late || every(recipe_.checkpoint_every, done);
    const bool check = done == steps || every(recipe_.validate_every, done);
    if (!save && !check && !every(recipe_.log_every, done)) continue;
    if (!read_back()) {
      const PendingStep bad = pending_.front();
      pending_.clear();
      return stop_not_finite(bad);
    }
    if (check) validate_all();
    if (save) checkpoint();
    if (interrupted && done < steps) return TrainEnd::interrupted;
    if (late) return TrainEnd::out_of_time;
  }
  return TrainEnd::finished;
}

}  // namespace

TrainEnd train(const Recipe& recipe, const TrainOptions& options) { return Run(recipe, options).go(); }

}  // namespace k3::train

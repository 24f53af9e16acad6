#include "cli/step/trainer.hpp"

#include <cmath>
#include <map>
#include <numeric>

#include "catch.hpp"
#include "cli/step/unsharded.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"
#include "tests/step/training.hpp"

using namespace distattn;
using namespace distattn::step;
using test::train;
using test::Training;
using test::TrainingRun;

namespace {

const ModelShape grouped{.layers = 2, .hidden = 64, .ffn = 88, .vocab = 256, .heads = 4, .kv_heads = 2};

StepGradients exact_step(const TrainingRun& run, const TokenSource& tokens, std::span<const float> values, int step) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(run.sequence));
  std::iota(positions.begin(), positions.end(), 0);
  return unsharded_step(run.shape, attention_problem(run.shape, run.sequence, causal_mask()), values,
                        tokens.batch(step, positions), 1);
}

}  // namespace

TEST_CASE("sharded gradients equal the unsharded float64 step, for any ranks and layout", "[step]") {
  const std::int64_t sequence = 150;  // divides by none of the rank counts but 1, 2 and 3
  const auto tokens = TokenSource::random(sequence, grouped.vocab, 3);
  const std::vector<std::pair<int, std::string>> cases{{1, "ring"},       {2, "zigzag-ring"}, {3, "striped-ring"},
                                                       {4, "mesh:2x2x1"}, {8, "balanced"},    {4, "ring/burst"},
                                                       {2, "ulysses"},    {8, "attention2d"}, {3, "allgather"}};
  for (const auto& [ranks, schedule] : cases) {
    INFO(ranks << " ranks, " << schedule);
    const TrainingRun run{
        .shape = grouped, .sequence = sequence, .ranks = ranks, .policy = "attention-output", .schedule = schedule};
    const Training training = train(run, tokens);
    const auto exact = exact_step(run, tokens, training.values_before, 0);
    const auto error = compare_gradients(parameters_of(grouped), training.gradients, exact.values);
    INFO(error.parameter);
    REQUIRE(error.largest < 1e-5);
    REQUIRE(training.steps[0].loss == Approx(exact.loss).epsilon(1e-6));
  }
}

TEST_CASE("policies: the same bits, attention forwards and their bytes 1 : 2 : 1, memory falling", "[step]") {
  const auto tokens = TokenSource::random(96, grouped.vocab, 4);
  for (const int ranks : {1, 3, 4}) {
    std::map<std::string, Training> by_policy;
    for (const CheckpointPolicy& policy : checkpoint_policies()) {
      const std::string name(policy.name);
      by_policy[name] = train({.shape = grouped, .sequence = 96, .ranks = ranks, .steps = 3, .policy = name}, tokens);
    }
    const auto& none = by_policy["none"];
    for (const auto& [name, training] : by_policy) {
      INFO(ranks << " ranks, " << name);
      REQUIRE(training.gradients == none.gradients);
      for (std::size_t step = 0; step < 3; ++step) {
        REQUIRE(training.steps[step].loss == none.steps[step].loss);
        REQUIRE(training.steps[step].grad_norm == none.steps[step].grad_norm);
        REQUIRE(training.steps[step].step == static_cast<int>(step));
        REQUIRE(training.steps[step].attention_backwards == grouped.layers);
        REQUIRE(training.steps[step].backward_bytes == none.steps[step].backward_bytes);
      }
    }
    const auto step_of = [&](const char* name) { return by_policy[name].steps[1]; };
    const StepReport kept = step_of("none"), layer = step_of("layer"), output = step_of("attention-output"),
                     host = step_of("attention-output-host");
    REQUIRE(kept.attention_forwards == grouped.layers);
    REQUIRE(layer.attention_forwards == 2 * grouped.layers);
    REQUIRE(output.attention_forwards == grouped.layers);
    REQUIRE(layer.forward_bytes == 2 * kept.forward_bytes);
    REQUIRE(output.forward_bytes == kept.forward_bytes);
    REQUIRE((kept.forward_bytes > 0) == (ranks > 1));
    REQUIRE(kept.peak_activation_bytes > output.peak_activation_bytes);
    REQUIRE(output.peak_activation_bytes > layer.peak_activation_bytes);
    REQUIRE(host.peak_activation_bytes == layer.peak_activation_bytes);
    REQUIRE(host.peak_offloaded_bytes == output.peak_activation_bytes - layer.peak_activation_bytes);
    REQUIRE(kept.gradient_bytes ==
            ranks * (ranks - 1) * 4 * static_cast<std::int64_t>(parameter_count(parameters_of(grouped))));
    REQUIRE(kept.bytes_sent_max * ranks >= kept.forward_bytes + kept.backward_bytes + kept.gradient_bytes);
  }
}

TEST_CASE("twenty steps on three ranks follow those on one", "[step]") {
  const ModelShape small{.layers = 1, .hidden = 32, .ffn = 48, .vocab = 256, .heads = 2, .kv_heads = 2};
  const auto tokens = TokenSource::random(64, small.vocab, 5);
  TrainingRun run{.shape = small, .sequence = 64, .ranks = 1, .steps = 20, .policy = "attention-output"};
  const Training one = train(run, tokens);
  run.ranks = 3;
  const Training three = train(run, tokens);
  for (std::size_t step = 0; step < 20; ++step) {
    INFO("step " << step);
    REQUIRE(three.steps[step].loss == Approx(one.steps[step].loss).epsilon(1e-3));
  }
  REQUIRE(three.steps[0].loss == Approx(one.steps[0].loss).epsilon(1e-6));
}

TEST_CASE("sixty steps on a real text lower the loss by more than a third", "[step]") {
  const ModelShape small{.layers = 2, .hidden = 64, .ffn = 176, .vocab = 256, .heads = 4, .kv_heads = 2};
  const auto tokens = TokenSource::text(DISTATTN_TEST_DATA "/../../LICENSE", 128, small.vocab);
  const Training training = train({.shape = small,
                                   .sequence = 128,
                                   .ranks = 2,
                                   .steps = 60,
                                   .policy = "attention-output",
                                   .schedule = "zigzag-ring"},
                                  tokens);
  const auto mean_of_five = [&](std::size_t first) {
    double sum = 0;
    for (std::size_t step = first; step < first + 5; ++step) sum += training.steps[step].loss / 5;
    return sum;
  };
  INFO(training.steps.front().loss << " to " << training.steps.back().loss);
  REQUIRE(training.steps.front().loss == Approx(std::log(256.0)).epsilon(0.05));
  REQUIRE(mean_of_five(55) < mean_of_five(0) * 2 / 3);
}

TEST_CASE("a rank may have no tokens at all", "[step]") {
  const ModelShape small{.layers = 1, .hidden = 16, .ffn = 24, .vocab = 50, .heads = 2, .kv_heads = 1};
  const auto tokens = TokenSource::random(3, small.vocab, 6);
  const TrainingRun run{.shape = small, .sequence = 3, .ranks = 4, .policy = "layer"};
  const Training training = train(run, tokens);
  const auto exact = exact_step(run, tokens, training.values_before, 0);
  REQUIRE(compare_gradients(parameters_of(small), training.gradients, exact.values).largest < 1e-5);
}

TEST_CASE("a gradient that is no number is the largest error, whatever comes behind it", "[step]") {
  const ModelShape small{.layers = 1, .hidden = 16, .ffn = 24, .vocab = 50, .heads = 2, .kv_heads = 1};
  const std::vector<Parameter> parameters = parameters_of(small);
  const std::vector<double> exact(parameters.back().offset + parameters.back().size(), 1);
  std::vector<float> gradients(exact.begin(), exact.end());
  gradients[parameters[1].offset] = NAN;
  const GradientError error = compare_gradients(parameters, gradients, exact);
  CHECK(std::isinf(error.largest));
  CHECK(error.parameter == parameters[1].name);
}

TEST_CASE("a gradient that is zero but for rounding is measured beside the others", "[step]") {
  // Tokens that are all the same have equal values: whatever a query attends to, its output is that value.
  const ModelShape shape{.layers = 1, .hidden = 32, .ffn = 24, .vocab = 50, .heads = 2, .kv_heads = 1};
  const auto same = TokenSource::random(12, 1, 0);
  const TrainingRun run{.shape = shape, .sequence = 12, .ranks = 2, .policy = "layer"};
  const Training training = train(run, same);
  const auto exact = exact_step(run, same, training.values_before, 0);
  const auto parameters = parameters_of(shape);
  const auto error = compare_gradients(parameters, training.gradients, exact.values);
  INFO(error.parameter << " " << error.largest);
  CHECK(error.largest < 1e-5);

  std::vector<float> wrong(training.gradients);
  REQUIRE(parameters[2].name == "layer0.wq");
  for (std::size_t i = 0; i < parameters[2].size(); ++i) wrong[parameters[2].offset + i] += 1e-2f;
  CHECK(compare_gradients(parameters, wrong, exact.values).largest > 1e-3);
}

TEST_CASE("an error on one rank in the middle of a step ends the run with that error", "[step]") {
  const ModelShape small{.layers = 2, .hidden = 16, .ffn = 24, .vocab = 50, .heads = 2, .kv_heads = 1};
  const auto tokens = TokenSource::random(24, small.vocab, 7);
  ScheduleRequest options;
  options.schedule = "ring";
  options.passes = Passes::both;
  const auto plan = std::make_shared<const AttentionPlan>(attention_problem(small, 24, causal_mask()), 3, options);
  const auto body = [&](Rank rank, Transport& transport, Bootstrap& bootstrap) {
    const auto device = make_device("reference", {.threads = 1, .local_ranks = 3});
    Attention attention(plan, *device, transport);
    Trainer trainer(small, checkpoint_policy("none"), tokens, 1, attention, bootstrap);
    trainer.run_step();
    trainer.run_step([rank] {
      if (rank == 2) throw Error(ErrorKind::environment, "rank 2 ran out of memory");
    });
  };
  REQUIRE_THROWS_WITH(run_ranks(3, body), contains_text("rank 2 ran out of memory"));
}

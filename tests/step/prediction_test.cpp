#include "cli/step/prediction.hpp"

#include "catch.hpp"
#include "cli/step/models.hpp"
#include "cli/step/sequence_search.hpp"
#include "distattn/error.hpp"

using namespace distattn;
using namespace distattn::step;
using Catch::Matchers::Contains;

namespace {

/// Every product at one rate, links as good as none.
Machine ideal_machine(int ranks) {
  Machine machine;
  machine.name = "ideal";
  machine.ranks_per_node = ranks;
  machine.near = machine.far = {1e30, 0};
  const RateCurve rate{{{0, 1e12}}};
  for (auto& of_type : machine.rates) of_type = {KernelRates{rate, rate}, KernelRates{rate, rate}};
  machine.memory_bytes = std::int64_t{80} << 30;
  return machine;
}

StepSetting square_setting(std::int64_t tokens_per_hidden) {
  StepSetting setting;
  setting.shape = {.layers = 4, .hidden = 1536, .ffn = 4096, .vocab = 1, .heads = 12, .kv_heads = 12};
  setting.sequence = tokens_per_hidden * setting.shape.hidden;
  setting.attention.schedule = "ring";
  return setting;
}

}  // namespace

TEST_CASE("layer over attention-output is what products count, but for the product that is not repeated", "[step]") {
  const Machine machine = ideal_machine(1);
  double last = 1;
  for (const double ratio : {8.0, 16.0, 32.0, 64.0, 4096.0}) {
    const StepSetting setting = square_setting(static_cast<std::int64_t>(ratio));
    const AttentionCost attention = or_refuse(attention_cost(setting, machine));
    const auto seconds = [&](std::string_view policy) {
      return predict_step(setting, checkpoint_policy(policy), attention, machine).seconds;
    };
    const double dense = 96 - 16.0 / 3, expected = (9 * ratio + dense) / (7 * ratio + dense);
    const double predicted = seconds("layer") / seconds("attention-output");
    REQUIRE(predicted == Approx(expected).epsilon(1e-3));
    REQUIRE(predicted > last);
    REQUIRE(seconds("none") < seconds("attention-output"));
    REQUIRE(seconds("attention-output-host") == seconds("attention-output"));
    last = predicted;
  }
  REQUIRE(last == Approx(9.0 / 7).epsilon(0.01));
}

TEST_CASE("messages follow attention forwards; memory falls from none to layer", "[step]") {
  StepSetting setting = square_setting(8);
  setting.ranks = 4;
  setting.attention.schedule = "balanced";
  const Machine machine = ideal_machine(4);
  const AttentionCost attention = or_refuse(attention_cost(setting, machine));
  const auto none = predict_step(setting, checkpoint_policy("none"), attention, machine),
             layer = predict_step(setting, checkpoint_policy("layer"), attention, machine),
             output = predict_step(setting, checkpoint_policy("attention-output"), attention, machine),
             host = predict_step(setting, checkpoint_policy("attention-output-host"), attention, machine);
  REQUIRE(none.forward_bytes > 0);
  REQUIRE(layer.forward_bytes == 2 * none.forward_bytes);
  REQUIRE(output.forward_bytes == none.forward_bytes);
  REQUIRE(layer.backward_bytes == none.backward_bytes);
  REQUIRE(none.peak_activation_bytes > output.peak_activation_bytes);
  REQUIRE(output.peak_activation_bytes > layer.peak_activation_bytes);
  REQUIRE(host.peak_activation_bytes == layer.peak_activation_bytes);
  REQUIRE(host.peak_offloaded_bytes == output.peak_activation_bytes - layer.peak_activation_bytes);
  SequenceSearch search(setting, machine);
  REQUIRE(search.longest(checkpoint_policy("none")) < search.longest(checkpoint_policy("attention-output")));
  REQUIRE(search.longest(checkpoint_policy("attention-output")) < search.longest(checkpoint_policy("layer")));
}

TEST_CASE("on cores, what is kept in host memory takes the rank's own", "[step]") {
  const StepSetting setting = square_setting(8);
  Machine machine = ideal_machine(1);
  const auto predict = [&](std::string_view policy) {
    return predict_step(setting, checkpoint_policy(policy), or_refuse(attention_cost(setting, machine)), machine);
  };
  const auto longest = [&](std::string_view policy) {
    return SequenceSearch(setting, machine).longest(checkpoint_policy(policy));
  };
  REQUIRE(predict("attention-output-host").memory_bytes == predict("layer").memory_bytes);
  REQUIRE(longest("attention-output-host") == longest("layer"));

  machine.cores = 8;
  const StepPrediction host = predict("attention-output-host");
  REQUIRE(host.memory_bytes == predict("layer").memory_bytes + host.peak_offloaded_bytes);
  REQUIRE(longest("attention-output-host").value() < longest("layer").value());
}

TEST_CASE("the longest sequence fits and the next does not, whatever length is asked with", "[step]") {
  StepSetting setting = square_setting(8);
  setting.ranks = GENERATE(1, 6);
  setting.attention.schedule = GENERATE("ring", "burst:zigzag", "ulysses");
  INFO(setting.attention.schedule);
  const Machine machine = ideal_machine(setting.ranks);
  const auto& policy = checkpoint_policy(GENERATE("none", "layer"));
  const auto bytes = [&](std::int64_t sequence) {
    setting.sequence = sequence;
    return predict_step(setting, policy, or_refuse(attention_cost(setting, machine)), machine).memory_bytes;
  };
  const std::int64_t longest = SequenceSearch(setting, machine).longest(policy).value();
  REQUIRE(longest > setting.sequence);
  REQUIRE(longest % setting.ranks == 0);
  REQUIRE(bytes(longest) <= machine.memory_bytes);
  REQUIRE(bytes(longest + setting.ranks) > machine.memory_bytes);
  for (const std::int64_t asked : {std::int64_t{1}, std::int64_t{4}, 2 * longest}) {
    setting.sequence = asked;
    REQUIRE(SequenceSearch(setting, machine).longest(policy) == longest);
  }
}

TEST_CASE("the longest sequence has the fullest rank's buffers, though other ranks be fuller in one pass", "[step]") {
  StepSetting setting = square_setting(8);
  setting.ranks = 6;
  setting.attention.schedule = "balanced";
  setting.dtype = setting.wire = DType::bf16;
  setting.state = StatePlacement::sharded;
  const Machine machine = find_machine("dgx-a100x2");
  const auto& policy = checkpoint_policy("none");
  setting.sequence = SequenceSearch(setting, machine).longest(policy).value() + setting.ranks;
  CHECK(predict_step(setting, policy, or_refuse(attention_cost(setting, machine)), machine).memory_bytes >
        machine.memory_bytes);
}

TEST_CASE("a length that is shorter than the mask's prefix is not too long", "[step]") {
  StepSetting setting = square_setting(8);
  setting.ranks = 6;
  const Machine machine = ideal_machine(setting.ranks);
  const auto& policy = checkpoint_policy("layer");
  setting.attention.schedule = "ring";
  const auto longest_with = [&](std::int64_t prefix, std::int64_t asked) {
    setting.mask_at = [prefix](std::int64_t sequence) { return std::optional(prefix_mask(sequence, prefix)); };
    setting.sequence = asked;
    setting.mask = prefix_mask(asked, prefix);
    return SequenceSearch(setting, machine).longest(policy);
  };
  const std::int64_t longest = longest_with(1, 6).value();
  REQUIRE(longest > 100);
  // A ring's buffers are as large with any prefix.
  const std::int64_t near = longest * 9 / 10 / 6 * 6 + 1;
  CHECK(longest_with(7, 7) == longest);
  CHECK(longest_with(near, near) == longest_with(near, near + 5));
  CHECK(longest_with(near, near) > near);
  CHECK(longest_with(near, 3 * longest) == longest_with(near, near));
  CHECK(longest_with(2 * longest, 2 * longest) == 0);
}

TEST_CASE("no sequence fits beside too much state, none is known for a mask of one length", "[step]") {
  StepSetting setting = square_setting(8);
  setting.ranks = 2;
  setting.mask.left = 4096;  // buffers stop growing where the window does
  const Machine machine = ideal_machine(2);
  const auto& policy = checkpoint_policy("attention-output");
  REQUIRE(SequenceSearch(setting, machine).longest(policy) > 4096);

  setting.mask_at = [](std::int64_t) { return std::optional<Mask>(); };
  REQUIRE_FALSE(SequenceSearch(setting, machine).longest(policy));

  setting.mask_at = nullptr;
  setting.shape = find_model("gpt-175b");
  REQUIRE(SequenceSearch(setting, machine).longest(policy) == 0);
}

TEST_CASE("activations are those of the rank that owns most", "[step]") {
  StepSetting setting = square_setting(1);
  setting.sequence = 7;
  setting.ranks = 8;
  const Machine machine = ideal_machine(8);
  const auto kept = [&](const char* schedule) {
    setting.attention.schedule = schedule;
    return predict_step(setting, checkpoint_policy("none"), or_refuse(attention_cost(setting, machine)), machine)
        .peak_activation_bytes;
  };
  REQUIRE(kept("burst:zigzag") == 2 * kept("ring"));
}

TEST_CASE("a schedule that does not apply is refused with its reason", "[step]") {
  StepSetting setting = square_setting(8);
  setting.ranks = 16;
  setting.attention.schedule = "ulysses";
  REQUIRE_THROWS_WITH(or_refuse(attention_cost(setting, ideal_machine(16))),
                      Contains("schedule ulysses does not apply"));
}

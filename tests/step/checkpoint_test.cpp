#include "cli/step/checkpoint.hpp"

#include <numeric>

#include "catch.hpp"
#include "cli/step/decoder.hpp"
#include "cli/step/tokens.hpp"
#include "cli/step/unsharded.hpp"

using namespace distattn;
using namespace distattn::step;
using Catch::Matchers::Contains;

namespace {

class CountingAttention final : public RankAttention<double> {
 public:
  CountingAttention(const ModelShape& shape, std::int64_t tokens)
      : problem_(attention_problem(shape, tokens, causal_mask())), exact_(problem_, 1) {}
  void forward(const AttentionInputs<double>& in, double* o, double* lse) override {
    ++forwards;
    exact_.forward(in, o, lse);
  }
  void backward(const AttentionInputs<double>& in, const double* o, const double* lse, const double* d_o, double* dq,
                double* dk, double* dv) override {
    ++backwards;
    exact_.backward(in, o, lse, d_o, dq, dk, dv);
  }
  int forwards = 0, backwards = 0;

 private:
  Problem problem_;
  ExactAttention exact_;
};

struct Outcome {
  double loss = 0;
  std::vector<double> gradients;
  int forwards = 0, backwards = 0;
  std::size_t kept = 0, compute = 0, host = 0, left = 0;
};

Outcome run(const ModelShape& shape, std::string_view policy) {
  const std::int64_t tokens = 24;
  const auto parameters = parameters_of(shape);
  const auto values = draw_parameters<double>(parameters, 5);
  std::vector<std::int64_t> positions(tokens);
  std::iota(positions.begin(), positions.end(), 0);
  const auto batch = TokenSource::random(tokens, shape.vocab, 5).batch(0, positions);
  CountingAttention attention(shape, tokens);
  Decoder<double> decoder(shape, positions, attention, checkpoint_policy(policy));
  Outcome outcome;
  outcome.gradients.assign(values.size(), 0.0);
  const auto weights = weights_view(shape, parameters, values.data());
  outcome.loss = decoder.forward(weights, batch, 1.0 / (tokens - 1));
  decoder.backward(weights, batch, weights_view(shape, parameters, outcome.gradients.data()));
  outcome.forwards = attention.forwards;
  outcome.backwards = attention.backwards;
  outcome.kept = decoder.memory().kept.peak();
  outcome.compute = decoder.memory().compute.peak();
  outcome.host = decoder.memory().host.peak();
  outcome.left = decoder.memory().compute.live() + decoder.memory().host.live();
  return outcome;
}

}  // namespace

TEST_CASE("policies change memory and attention forwards, and no bit of loss or gradients", "[step]") {
  const ModelShape shape{.layers = 3, .hidden = 32, .ffn = 40, .vocab = 30, .heads = 4, .kv_heads = 2};
  const auto none = run(shape, "none"), layer = run(shape, "layer"), output = run(shape, "attention-output"),
             offloaded = run(shape, "attention-output-host");
  for (const Outcome* other : {&layer, &output, &offloaded}) {
    REQUIRE(other->loss == none.loss);
    REQUIRE(other->gradients == none.gradients);
    REQUIRE(other->backwards == shape.layers);
    REQUIRE(other->left == 0);
  }
  REQUIRE(none.forwards == shape.layers);
  REQUIRE(layer.forwards == 2 * shape.layers);
  REQUIRE(output.forwards == shape.layers);
  REQUIRE(offloaded.forwards == shape.layers);

  REQUIRE(none.kept > output.kept);
  REQUIRE(output.kept > layer.kept);
  REQUIRE(offloaded.kept == layer.kept);
  REQUIRE(output.kept - layer.kept == offloaded.host);
  REQUIRE(none.compute > output.compute);
  REQUIRE(output.compute > layer.compute);
  const std::size_t tokens = 24, o_and_lse = tokens * (32 + 4 + 4) * sizeof(double);
  REQUIRE(offloaded.host == 3 * o_and_lse);
  std::size_t everything = 32 + 30;  // the last layer's output and the gradient of its logits
  for (const Part part : checkpoint_policy("none").kept) {
    everything += 3 * static_cast<std::size_t>(width_of(shape, part));
  }
  REQUIRE(none.kept == everything * tokens * sizeof(double));
}

TEST_CASE("an unknown policy is refused with the known ones", "[step]") {
  REQUIRE_THROWS_WITH(checkpoint_policy("selective"),
                      Contains("'selective'") && Contains("none, layer, attention-output, attention-output-host"));
}

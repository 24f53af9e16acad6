#include "cli/step/decoder.hpp"

#include <numeric>

#include "catch.hpp"
#include "cli/step/tokens.hpp"
#include "cli/step/unsharded.hpp"
#include "tests/dense/finite_difference.hpp"

using namespace distattn;
using namespace distattn::step;

namespace {

double loss_at(const ModelShape& shape, std::span<const double> values, const TokenBatch& batch) {
  std::vector<std::int64_t> positions(batch.tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const auto tokens = static_cast<std::int64_t>(positions.size());
  const Problem problem = attention_problem(shape, tokens, causal_mask());
  ExactAttention attention(problem, 1);
  Decoder<double> decoder(shape, positions, attention, checkpoint_policy("none"));
  const double weight = 1.0 / static_cast<double>(tokens - 1);
  return weight * decoder.forward(weights_view(shape, parameters_of(shape), values.data()), batch, weight);
}

TokenBatch whole_batch(const TokenSource& source, std::int64_t tokens) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(tokens));
  std::iota(positions.begin(), positions.end(), 0);
  return source.batch(0, positions);
}

}  // namespace

TEST_CASE("gradients of the unsharded step agree with finite differences for every parameter", "[step]") {
  const ModelShape shape{.layers = 2, .hidden = 16, .ffn = 12, .vocab = 9, .heads = 2, .kv_heads = 1};
  const auto parameters = parameters_of(shape);
  // Weights as large as those of a trained model: at 0.02 attention and SwiGLU hardly bend the loss.
  auto drawn = draw_parameters<float>(parameters, 1);
  for (float& value : drawn) value = value == 1.0f ? 0.9f : 15 * value;
  const auto batch = whole_batch(TokenSource::random(7, shape.vocab, 2), 7);
  const auto step =
      unsharded_step(shape, attention_problem(shape, std::ssize(batch.tokens), causal_mask()), drawn, batch, 1);

  std::vector<double> values(drawn.begin(), drawn.end());
  REQUIRE(step.loss == Approx(loss_at(shape, values, batch)));
  for (const Parameter& parameter : parameters) {
    INFO(parameter.name);
    std::vector<double> part(values.begin() + static_cast<std::ptrdiff_t>(parameter.offset),
                             values.begin() + static_cast<std::ptrdiff_t>(parameter.offset + parameter.size()));
    const std::vector<double> gradient(
        step.values.begin() + static_cast<std::ptrdiff_t>(parameter.offset),
        step.values.begin() + static_cast<std::ptrdiff_t>(parameter.offset + parameter.size()));
    const auto loss = [&] {
      auto moved = values;
      std::copy(part.begin(), part.end(), moved.begin() + static_cast<std::ptrdiff_t>(parameter.offset));
      return loss_at(shape, moved, batch);
    };
    REQUIRE(test::gradient_error(part, gradient, loss) < 1e-6);
  }
}

TEST_CASE("the first loss is that of a uniform guess", "[step]") {
  const ModelShape shape{.layers = 1, .hidden = 32, .ffn = 48, .vocab = 256, .heads = 4, .kv_heads = 2};
  const auto values = draw_parameters<double>(parameters_of(shape), 1);
  const auto batch = whole_batch(TokenSource::random(64, 256, 1), 64);
  REQUIRE(loss_at(shape, values, batch) == Approx(std::log(256.0)).epsilon(0.02));
}

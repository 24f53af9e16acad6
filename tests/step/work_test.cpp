#include "cli/step/work.hpp"

#include <numeric>

#include "catch.hpp"
#include "cli/step/decoder.hpp"
#include "cli/step/models.hpp"
#include "cli/step/tokens.hpp"
#include "cli/step/unsharded.hpp"

using namespace distattn;
using namespace distattn::step;
using Catch::Matchers::Contains;

TEST_CASE("predicted activation bytes are those that a step allocates", "[step]") {
  const std::int64_t tokens = 32;
  struct Sizes {
    std::int64_t ffn, vocab;  // the peak: in the feed-forward part, at the head, in the attention
  };
  for (const auto [ffn, vocab] : {Sizes{80, 16}, Sizes{80, 1024}, Sizes{4, 16}}) {
    const ModelShape shape{.layers = 3, .hidden = 32, .ffn = ffn, .vocab = vocab, .heads = 4, .kv_heads = 2};
    const auto parameters = parameters_of(shape);
    const auto values = draw_parameters<double>(parameters, 1);
    std::vector<double> gradients(values.size());
    std::vector<std::int64_t> positions(tokens);
    std::iota(positions.begin(), positions.end(), 0);
    const auto batch = TokenSource::random(tokens, vocab, 1).batch(0, positions);
    const Problem problem = attention_problem(shape, tokens, causal_mask());
    for (const CheckpointPolicy& policy : checkpoint_policies()) {
      ExactAttention attention(problem, 1);
      Decoder<double> decoder(shape, positions, attention, policy);
      const auto weights = weights_view(shape, parameters, values.data());
      decoder.forward(weights, batch, 1.0);
      decoder.backward(weights, batch, weights_view(shape, parameters, gradients.data()));

      INFO(policy.name << ", ffn " << ffn << ", vocab " << vocab);
      const ActivationBytes predicted = activation_bytes(shape, policy, tokens, sizeof(double));
      REQUIRE(predicted.kept == static_cast<double>(decoder.memory().kept.peak()));
      REQUIRE(predicted.host == static_cast<double>(decoder.memory().host.peak()));
      REQUIRE(predicted.compute == static_cast<double>(decoder.memory().compute.peak()));
    }
  }
}

TEST_CASE("work of a decoder with ffn 8/3 hidden is what the formula says", "[step]") {
  const ModelShape shape{.layers = 5, .hidden = 768, .ffn = 2048, .vocab = 1, .heads = 12, .kv_heads = 12};
  const double tokens = 100, unit = 5 * tokens * 768.0 * 768.0;  // L·N·h²
  const double head = 2 * tokens * 768.0;
  REQUIRE(forward_work(shape, tokens).flops == Approx(24 * unit + head));
  REQUIRE(backward_work(shape, tokens).flops == Approx(48 * unit + 2 * head));
  // The layer's last product is not computed again: nobody reads it.
  const double last_product = 16.0 / 3.0;
  REQUIRE(recomputed_work(shape, checkpoint_policy("layer"), tokens).flops == Approx((24 - last_product) * unit));
  REQUIRE(recomputed_work(shape, checkpoint_policy("attention-output"), tokens).flops ==
          Approx((24 - last_product) * unit));
  REQUIRE(recomputed_work(shape, checkpoint_policy("none"), tokens).flops == 0);
  REQUIRE(attention_forwards(checkpoint_policy("none")) == 1);
  REQUIRE(attention_forwards(checkpoint_policy("layer")) == 2);
  REQUIRE(attention_forwards(checkpoint_policy("attention-output")) == 1);
  REQUIRE(attention_forwards(checkpoint_policy("attention-output-host")) == 1);
}

TEST_CASE("built-in models have the sizes that their names say", "[step]") {
  const auto billions = [](std::string_view name) { return parameter_count(find_model(name)) * 1e-9; };
  REQUIRE(billions("llama-7b") == Approx(6.738).epsilon(1e-3));
  REQUIRE(billions("llama-13b") == Approx(13.016).epsilon(1e-3));
  REQUIRE(billions("llama-3-8b") == Approx(8.030).epsilon(1e-3));
  REQUIRE(billions("gpt-2.7b") == Approx(2.7).epsilon(0.03));
  REQUIRE(billions("gpt-175b") == Approx(175).epsilon(0.02));
  for (const NamedModel& model : built_in_models()) REQUIRE_NOTHROW(check(model.shape));

  const ModelShape spelt = find_model("layers=3,hidden=96,heads=6,kv-heads=2");
  REQUIRE(spelt.layers == 3);
  REQUIRE(spelt.kv_heads == 2);
  REQUIRE(spelt.ffn == 256);
  REQUIRE(find_model("layers=1,hidden=16,heads=2,ffn=20,vocab=99").vocab == 99);
  REQUIRE_THROWS_WITH(find_model("llama"), Contains("llama-7b, "));
  REQUIRE_THROWS_WITH(find_model("layers=2,width=3"), Contains("'width' is unknown"));
  REQUIRE_THROWS_WITH(find_model("layers=two"), Contains("layers two (not a size)"));
  REQUIRE_THROWS_WITH(find_model("layers=2,layers=3"), Contains("'layers' is given twice"));
  REQUIRE_THROWS_WITH(find_model("layers=2,hidden=16,heads=2,"), Contains("an empty item"));
  REQUIRE(find_model("layers=1,hidden=2K,heads=16").hidden == 2048);
  REQUIRE_THROWS_WITH(find_model("layers=2,hidden=16"), Contains("heads is 0"));
  REQUIRE_THROWS_WITH(find_model("layers=0"), Contains("layers 0 (out of range): choose 1 to "));
  REQUIRE_THROWS_WITH(find_model("layers=2,hidden=2147483640,heads=8"), Contains("(sizes overflow 63 bits)"));
}

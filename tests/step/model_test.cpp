#include "cli/step/model.hpp"

#include <cmath>

#include "catch.hpp"
#include "distattn/error.hpp"

using namespace distattn;
using namespace distattn::step;
using Catch::Matchers::Contains;

TEST_CASE("parameters tile the flat run in order, and views see them", "[step]") {
  const ModelShape shape{.layers = 2, .hidden = 32, .ffn = 48, .vocab = 50, .heads = 4, .kv_heads = 2};
  const auto parameters = parameters_of(shape);
  REQUIRE(parameters.size() == 1 + 2 * 9 + 2);
  std::size_t next = 0;
  for (const Parameter& parameter : parameters) {
    REQUIRE(parameter.offset == next);
    next += parameter.size();
  }
  REQUIRE(parameter_count(parameters) == next);
  REQUIRE(parameter_count(shape) == static_cast<double>(next));
  const std::size_t layer = 2 * 32 + 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48;
  REQUIRE(next == 2 * 50 * 32 + 2 * layer + 32);

  std::vector<float> values(next);
  const auto view = weights_view(shape, parameters, values.data());
  REQUIRE(view.layers[1].w2.rows == 48);
  REQUIRE(view.layers[1].wk.cols == 16);
  REQUIRE(view.head.data + view.head.size() == values.data() + values.size());
}

TEST_CASE("weights are N(0, 0.02), gains one, float and double the same numbers", "[step]") {
  const ModelShape shape{.layers = 1, .hidden = 64, .ffn = 96, .vocab = 256, .heads = 4, .kv_heads = 4};
  const auto parameters = parameters_of(shape);
  const auto values = draw_parameters<float>(parameters, 7);
  const auto wide = draw_parameters<double>(parameters, 7);
  double sum = 0, squares = 0, fourth = 0;
  const Parameter& embedding = parameters[0];
  for (std::size_t i = 0; i < embedding.size(); ++i) {
    REQUIRE(static_cast<double>(values[i]) == wide[i]);
    const double z = wide[i] / 0.02;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
  }
  const auto n = static_cast<double>(embedding.size());
  REQUIRE(std::abs(sum / n) < 5 / std::sqrt(n));
  REQUIRE(squares / n == Approx(1).margin(5 * std::sqrt(2 / n)));
  REQUIRE(fourth / n == Approx(3).margin(5 * std::sqrt(96 / n)));
  REQUIRE(values[parameters[1].offset] == 1.0f);
  REQUIRE(draw_parameters<float>(parameters, 8)[0] != values[0]);
}

TEST_CASE("a layer's weights do not depend on how many layers follow", "[step]") {
  ModelShape shape{.layers = 1, .hidden = 16, .ffn = 24, .vocab = 20, .heads = 2, .kv_heads = 1};
  const auto one = draw_parameters<float>(parameters_of(shape), 3);
  const auto last_layer_end = parameters_of(shape)[10].offset;
  shape.layers = 3;
  const auto three = draw_parameters<float>(parameters_of(shape), 3);
  REQUIRE(std::equal(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(last_layer_end), three.begin()));
}

TEST_CASE("shapes that make no decoder are refused", "[step]") {
  ModelShape shape{.layers = 1, .hidden = 30, .ffn = 24, .vocab = 20, .heads = 4, .kv_heads = 4};
  REQUIRE_THROWS_WITH(check(shape), Contains("heads 4 do not divide hidden 30"));
  shape.hidden = 32;
  shape.kv_heads = 3;
  REQUIRE_THROWS_WITH(check(shape), Contains("kv-heads 3 do not divide heads 4"));
  shape.kv_heads = 2;
  shape.layers = 0;
  REQUIRE_THROWS_WITH(check(shape), Contains("layers is 0"));
  shape.layers = 1;
  for (const std::int64_t size : {std::int64_t{1} << 56, std::numeric_limits<std::int64_t>::max()}) {
    ModelShape wide = shape;
    wide.ffn = size;
    REQUIRE_THROWS_WITH(check(wide), Contains("(sizes overflow 63 bits)"));
    REQUIRE(usual_ffn(size) > 0);
  }
}

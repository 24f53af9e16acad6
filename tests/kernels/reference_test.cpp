/// The oracle itself, against what can be worked out by hand and against its own finite differences.

#include <algorithm>
#include <cmath>
#include <random>

#include "catch.hpp"
#include "kernels/reference/oracle.hpp"

using namespace distattn;
using namespace distattn::kernels;
using reference::compute_exactly;

namespace {

struct Drawn {
  std::int64_t seq_q, seq_kv;
  int heads, kv_heads, head_dim, value_dim;
  std::vector<double> q, k, v, d_o;
  Scores scores{.scale = 0.4};
  std::vector<double> sink_logits, alibi_slopes;
  Dropout dropout;

  Drawn(std::int64_t queries, std::int64_t keys, int h, int hkv, int d, int dv)
      : seq_q(queries), seq_kv(keys), heads(h), kv_heads(hkv), head_dim(d), value_dim(dv) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<double>& values, std::int64_t rows, int count, int dim) {
      values.resize(static_cast<std::size_t>(rows * count * dim));
      for (double& value : values) value = normal(random);
    };
    fill(q, seq_q, heads, head_dim);
    fill(k, seq_kv, kv_heads, head_dim);
    fill(v, seq_kv, kv_heads, value_dim);
    fill(d_o, seq_q, heads, value_dim);
  }

  static ConstTensorView view(const std::vector<double>& values, std::int64_t rows, int count, int dim) {
    return dense_view(reinterpret_cast<const std::byte*>(values.data()), DType::fp64, 1, rows, count, dim);
  }

  reference::WholeAttention attention(std::span<const Band> bands) const {
    return {.q = view(q, seq_q, heads, head_dim),
            .k = view(k, seq_kv, kv_heads, head_dim),
            .v = view(v, seq_kv, kv_heads, value_dim),
            .d_o = view(d_o, seq_q, heads, value_dim),
            .queries = {seq_kv - seq_q, seq_q, 1},
            .keys = {0, seq_kv, 1},
            .bands = bands,
            .scores = scores,
            .dropout = dropout.probability > 0 ? &dropout : nullptr,
            .alibi_slopes = alibi_slopes,
            .sink_logits = sink_logits};
  }

  // Σ d_o ∘ o: what the gradients are of.
  double loss(std::span<const Band> bands, Team& team) const {
    const auto o = compute_exactly(attention(bands), team).o;
    double sum = 0;
    for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * d_o[i];
    return sum;
  }
};

}  // namespace

TEST_CASE("two keys, by hand") {
  Team team(1);
  Drawn in(1, 2, 1, 1, 8, 8);
  const Band all{};
  const auto exact = compute_exactly(in.attention({&all, 1}), team);
  double s[2] = {0, 0};
  for (std::size_t x = 0; x < 8; ++x) {
    s[0] += 0.4 * in.q[x] * in.k[x];
    s[1] += 0.4 * in.q[x] * in.k[8 + x];
  }
  const double sum = std::exp(s[0]) + std::exp(s[1]);
  CHECK(exact.lse[0] == Approx(std::log(sum)));
  for (std::size_t x = 0; x < 8; ++x) {
    CHECK(exact.o[x] == Approx((std::exp(s[0]) * in.v[x] + std::exp(s[1]) * in.v[8 + x]) / sum));
  }
}

namespace {

/// All gradients of these inputs' loss are those of the forward pass, by central differences.
void check_gradients(Drawn& in) {
  Team team(2);
  const std::vector<Band> bands{{.k0 = 0, .k1 = 2, .lo = 0}, {.k0 = 2, .lo = 0, .hi = 2}};
  const auto exact = compute_exactly(in.attention(bands), team);
  const auto check = [&](std::vector<double>& input, const std::vector<double>& gradient, std::size_t every) {
    REQUIRE(gradient.size() == input.size());
    for (std::size_t i = 0; i < input.size(); i += every) {
      const double kept = input[i], step = 1e-5;
      input[i] = kept + step;
      const double above = in.loss(bands, team);
      input[i] = kept - step;
      const double below = in.loss(bands, team);
      input[i] = kept;
      CHECK(gradient[i] == Approx((above - below) / (2 * step)).epsilon(1e-6).margin(1e-8));
    }
  };
  check(in.q, exact.dq, 3);
  check(in.k, exact.dk, 3);
  check(in.v, exact.dv, 3);
  if (in.scores.sink_logits) check(in.sink_logits, exact.dsink_logits, 1);
}

}  // namespace

TEST_CASE("gradients are those of the forward pass") {
  Drawn in(5, 7, 4, 2, 8, 16);
  check_gradients(in);
}

TEST_CASE("gradients of caps, biases, sinks and dropout are those of the forward pass") {
  for (const double softcap : {0.0, 0.7}) {
    for (const bool biased : {false, true}) {
      for (const bool sinks : {false, true}) {
        CAPTURE(softcap, biased, sinks);
        Drawn in(5, 7, 4, 2, 8, 16);
        in.scores.softcap = softcap;
        in.scores.sink_logits = sinks;
        if (biased) in.alibi_slopes = {0.5, -0.25, 0, 2};
        if (sinks) in.sink_logits = {0.3, -1, 2, 5};
        check_gradients(in);
        in.dropout = {.probability = 0.4, .seed = 3, .offset = 1, .heads = 4};
        check_gradients(in);
      }
    }
  }
}

TEST_CASE("caps, biases and sinks by hand") {
  Team team(1);
  Drawn in(1, 2, 1, 1, 8, 8);
  in.scores.softcap = 0.9;
  in.scores.sink_logits = true;
  in.sink_logits = {0.25};
  in.alibi_slopes = {0.5};
  const Band all{};
  const auto exact = compute_exactly(in.attention({&all, 1}), team);
  double s[2] = {0, 0};  // of the keys at 0 and 1, seen by the query at 1
  for (std::size_t x = 0; x < 8; ++x) {
    s[0] += 0.4 * in.q[x] * in.k[x];
    s[1] += 0.4 * in.q[x] * in.k[8 + x];
  }
  s[0] = 0.9 * std::tanh(s[0] / 0.9) - 0.5;
  s[1] = 0.9 * std::tanh(s[1] / 0.9);
  const double sum = std::exp(s[0]) + std::exp(s[1]) + std::exp(0.25);
  CHECK(exact.lse[0] == Approx(std::log(sum)));
  CHECK(exact.max_logit[0] == Approx(std::max(s[0], s[1])));
  for (std::size_t x = 0; x < 8; ++x) {
    CHECK(exact.o[x] == Approx((std::exp(s[0]) * in.v[x] + std::exp(s[1]) * in.v[8 + x]) / sum));
  }
}

TEST_CASE("a query without keys gives zero, -inf and no gradient") {
  Team team(1);
  Drawn in(3, 3, 1, 1, 8, 8);
  const Band causal{.lo = 1};  // strictly earlier keys: the first query has none
  const auto exact = compute_exactly(in.attention({&causal, 1}), team);
  CHECK(exact.lse[0] == -INFINITY);
  for (std::size_t x = 0; x < 8; ++x) {
    CHECK(exact.o[x] == 0);
    CHECK(exact.dq[x] == 0);
    CHECK(exact.dk[2 * 8 + x] == 0);
    CHECK(exact.dv[2 * 8 + x] == 0);
  }
}

/// Forward and backward round scores alike, and statistics lose nothing with the size of scores: what follows holds to
/// the last bit, or where scores are in the hundreds, thousands and beyond.

#include <algorithm>
#include <cmath>

#include "catch.hpp"
#include "kernels/cuda/general_scores.cuh"
#include "simt/attention_run.hpp"

namespace {

using namespace distattn::kernels::cuda;
using distattn::Run;
using distattn::kernels::Bf16;
using distattn::kernels::Fp16;
using simt::Attention;
using simt::AttentionCase;
using simt::kernel_for;
using simt::launch;

constexpr unsigned scores_seed = 40;

/// sm_80, and Hopper where it can be had and has kernels of its own.
template <class T>
std::vector<int> generations() {
  return std::is_same_v<T, float> || !simt::has_hopper_units() ? std::vector{80} : std::vector{80, 90};
}

/// Forward, each query segment against its key segments one after the other: a carry between any two.
template <class T>
void attend_in_pieces(const AttentionCase& c, Attention<T>& attention, int architecture) {
  const AttendKernel& kernel = kernel_for<T>(TilePass::forward, c, architecture);
  for (std::size_t piece = 0; piece < c.keys.size(); ++piece) {
    auto operations = attention.forward();
    for (auto& args : operations) {
      args.keys = args.keys.subspan(piece, 1);
      args.carry = piece > 0;
    }
    launch(kernel, AttendPlan(operations, kernel.tile, kernel.describe), scores_seed);
  }
}

/// From the statistics that forward has left.
template <class T>
void differentiate(const AttentionCase& c, Attention<T>& attention, int architecture, std::vector<TilePass> passes) {
  attention.take_statistics();
  attention.clear_query_gradients();
  for (const TilePass pass : passes) {
    const AttendKernel& kernel = kernel_for<T>(pass, c, architecture);
    launch(kernel, AttendPlan(attention.backward(), kernel.owner, kernel.tile, kernel.describe), scores_seed);
  }
}

/// What a backward pass may consist of.
std::vector<std::vector<TilePass>> ways_backward(int architecture) {
  std::vector<std::vector<TilePass>> ways{{TilePass::query_gradient, TilePass::key_gradients}};
  if (architecture == 90) ways.push_back({TilePass::gradients});
  return ways;
}

std::vector<Run> in_pieces(std::int64_t tokens, std::int64_t pieces) {
  std::vector<Run> runs;
  for (std::int64_t i = 0; i < pieces; ++i) runs.push_back({i * tokens / pieces, tokens / pieces});
  return runs;
}

/// Every row sees itself alone, in the last of three pieces that the others of its block see something of.
template <class T>
void check_alone(float element, double scale_factor, double softcap = 0) {
  INFO(name_of(Attention<T>::dtype()) << ", elements of " << element << ", scale " << scale_factor << "/8, cap "
                                      << softcap);
  const AttentionCase c{.name = "alone",
                        .queries = {{0, 70}},
                        .keys = {{0, 20}, {20, 1}, {21, 49}},
                        .bands = {{.lo = 0, .hi = 0}},
                        .scale_factor = scale_factor,
                        .all = element,
                        .softcap = softcap,
                        .slopes = softcap == 0 ? std::vector<double>{} : std::vector{0.3}};
  for (const int architecture : generations<T>()) {
    for (const auto& passes : ways_backward(architecture)) {
      CAPTURE(architecture, passes.size());
      Attention<T> attention(c, scores_seed);
      attend_in_pieces(c, attention, architecture);
      differentiate(c, attention, architecture, passes);
      const auto all_are = [](const auto& arrays, float value) {
        for (const auto& array : arrays) {
          for (const float x : array.values()) {
            if (x != value) return false;
          }
        }
        return true;
      };
      CHECK(all_are(attention.results().o, 1));
      CHECK(all_are(attention.results().dv, 1));
      CHECK(all_are(attention.results().dq, 0));
      CHECK(all_are(attention.results().dk, 0));
    }
  }
}

/// Values of 1: what is not dropped is the factor that makes up for it, of which no element type rounds anything.
template <class T>
void check_alone_dropped() {
  AttentionCase c{.name = "alone, some dropped",
                  .queries = {{0, 70}},
                  .keys = {{0, 20}, {20, 1}, {21, 49}},
                  .bands = {{.lo = 0, .hi = 0}},
                  .heads = {.q_count = 2, .kv_count = 1, .per_kv = 2},
                  .all = 0.3f};
  c.dropout = {.probability = 0.3, .seed = simt::dropout_seed, .offset = simt::dropout_offset, .heads = 2};
  for (const int architecture : generations<T>()) {
    CAPTURE(name_of(Attention<T>::dtype()), architecture);
    Attention<T> attention(c, scores_seed);
    attend_in_pieces(c, attention, architecture);
    int dropped = 0, kept = 0, wrong = 0;
    for (const auto& array : attention.results().o) {
      for (const float x : array.values()) {
        const bool is_kept = std::abs(0.7 * static_cast<double>(x) - 1) < 4e-7;
        dropped += x == 0 ? 1 : 0;
        kept += is_kept ? 1 : 0;
        wrong += x == 0 || is_kept ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
    CHECK(dropped > 0);
    CHECK(kept > dropped);
  }
}

}  // namespace

TEST_CASE("a row that sees itself alone weighs its key by 1", "[simt][scores][again]") {
  for (const float element : {0.3f, 2.0f, 3.7f, 11.3f, 100.0f, 1234.5f, 45678.9f}) {
    check_alone<float>(element, 1);
    check_alone<float>(element, -1);
    check_alone<Bf16>(element, 1);
    check_alone<Fp16>(element, 1.3);
  }
  for (const float element : {0.3f, 3.7f, 45678.9f}) {
    check_alone<float>(element, -1, 50);
    check_alone<Bf16>(element, 1, 50);
    check_alone<Fp16>(element, 1.3, 0.7);
  }
  check_alone<float>(133120.0f, 1);
  check_alone<Bf16>(133120.0f, 1);
  check_alone<Bf16>(350000.0f, 1);  // a score of 1e12
}

TEST_CASE("what dropout keeps of a row that sees itself alone is not rounded", "[simt][scores]") {
  check_alone_dropped<float>();
  check_alone_dropped<Bf16>();
  check_alone_dropped<Fp16>();
}

TEST_CASE("tanh is within 5e-7 of its size", "[simt][scores]") {
  double worst = 0;
  const auto check = [&](float x) {
    const double exact = std::tanh(static_cast<double>(x)), got = static_cast<double>(tanh_of(x));
    worst = std::max(worst, std::abs(got - exact) / std::abs(exact));
    if (!(std::abs(got) <= 1 + 5e-7)) worst = INFINITY;
  };
  for (float x = 1e-6f; x < 100; x *= 1.0003f) {
    check(x);
    check(-x);
  }
  CHECK(worst < 4e-7);  // where reciprocals are exact
  CHECK(tanh_of(0.0f) == 0);
  CHECK(tanh_of(INFINITY) == 1);
  CHECK(tanh_of(-9.5f) == -1);
  CHECK(std::isnan(tanh_of(NAN)));
}

TEST_CASE("the derivative of tanh is of its own size where that of 1 - tanh^2 is rounding", "[simt][scores]") {
  double worst = 0;
  for (float x = 1e-6f; x < 40; x *= 1.0003f) {
    const double power = std::exp(-2 * static_cast<double>(x)), exact = 4 * power / ((1 + power) * (1 + power));
    for (const float got : {derivative_of_tanh(x), derivative_of_tanh(-x)}) {
      worst = std::max(worst, std::abs(static_cast<double>(got) - exact) / exact / (5 + 3 * static_cast<double>(x)));
    }
  }
  CHECK(worst < 1e-7);
  CHECK(derivative_of_tanh(0.0f) == 1);
  CHECK(derivative_of_tanh(-INFINITY) == 0);
  CHECK(std::isnan(derivative_of_tanh(NAN)));
}

TEST_CASE("where scores are at the cap, gradients are right in relation to their own size", "[simt][scores]") {
  // One row whose keys share a component: all of its scores are near the cap, and derivatives are all that dq is made
  // of.
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    const AttentionCase c{.name = "at the cap",
                          .queries = {{69, 1}},
                          .keys = {{0, 70}},
                          .bands = {{.lo = 0}},
                          .key_bias = 60,
                          .softcap = 2};
    CAPTURE(seed);
    Attention<float> attention(c, seed);
    const AttendKernel& kernel = kernel_for<float>(TilePass::query_gradient, c);
    launch(kernel, AttendPlan(attention.backward(), kernel.owner, kernel.tile), seed);
    CHECK(attention.mean_query_gradient_error() < 1e-4);
  }
}

TEST_CASE("scores reach the cap", "[simt][scores]") {
  const AttentionCase c{.name = "beyond the cap",
                        .queries = {{0, 70}},
                        .keys = {{0, 70}},
                        .bands = {{.lo = 0}},
                        .all = 100,
                        .softcap = 50,
                        .max_logit = true};
  Attention<float> attention(c, scores_seed);
  attend_in_pieces(c, attention, 80);
  CHECK(attention.results().largest[0][0] == 50);
}

namespace {

/// Weights sum up to 1 in every row of the mask, and so what dv has of all rows.
template <class T>
void check_equals(float element, double at_most) {
  const AttentionCase c{.name = "equal keys",
                        .queries = {{0, 70}},
                        .keys = in_pieces(72, 3),
                        .bands = {{}},
                        .scale_factor = 1,
                        .all = element};
  INFO(name_of(Attention<T>::dtype()) << ", elements of " << element);
  for (const int architecture : generations<T>()) {
    for (const auto& passes : ways_backward(architecture)) {
      CAPTURE(architecture, passes.size());
      Attention<T> attention(c, scores_seed);
      attend_in_pieces(c, attention, architecture);
      differentiate(c, attention, architecture, passes);
      for (const auto& dv : attention.results().dv) {
        for (const float x : dv.values()) {
          CHECK(x >= 70.0f / 72 / at_most);
          CHECK(x <= 70.0f / 72 * at_most);
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("the largest of scores that round to one is found", "[simt][scores]") {
  // Products one bit apart, times what a product is in units of log2, may be one number. Here bits are worth thousands.
  const AttentionCase c{.name = "products one bit apart",
                        .queries = {{0, 60}},
                        .keys = in_pieces(60, 20),
                        .bands = {{.lo = 0}},
                        .scale_factor = 1,
                        .all = 160526,
                        .key_step = 0x1p-23f};
  Attention<float> attention(c, scores_seed);
  attend_in_pieces(c, attention, 80);
  differentiate(c, attention, 80, ways_backward(80)[0]);
  for (const float o : attention.results().o[0].values()) CHECK(o == Approx(1));
  for (const float lse : attention.results().lse[0].values()) CHECK(std::isfinite(lse));
  double sum = 0;
  for (const auto& dv : attention.results().dv) {
    for (const float x : dv.values()) {
      CHECK(x >= 0);
      sum += static_cast<double>(x) / 64;
    }
  }
  CHECK(sum >= 59.9);  // a weight that rounding takes from one key it gives to another or to both
}

TEST_CASE("weights are no larger than 1, however large scores are", "[simt][scores][again]") {
  check_equals<float>(3.7f, 1 + 1e-6);
  check_equals<float>(100.0f, 1 + 1e-5);
  check_equals<float>(12345.6f, 1.1);
  check_equals<float>(133120.0f, 72);
  check_equals<Bf16>(3.7f, 1 + 0x1p-8);
  check_equals<Bf16>(133120.0f, 72);
}

TEST_CASE("weights are numbers where scores are beyond what low parts of statistics hold", "[simt][scores]") {
  for (const float element : {1.1e6f, 1.3e6f, 1.7e6f}) {
    const AttentionCase c{.name = "far too large",
                          .queries = {{0, 40}},
                          .keys = {{0, 40}},
                          .bands = {{.lo = 0, .hi = 0}},
                          .scale_factor = 1,
                          .all = element};
    Attention<float> attention(c, scores_seed);
    attend_in_pieces(c, attention, 80);
    differentiate(c, attention, 80, ways_backward(80)[0]);
    for (const float dv : attention.results().dv[0].values()) CHECK((dv >= 0 && dv <= 1));
  }
}

namespace {

/// Keys have a component that all tokens share, as those of models have that add a bias to them.
AttentionCase case_with_bias(float bias, std::int64_t pieces) {
  return {.name = "keys with a bias",
          .queries = {{0, 128}},
          .keys = in_pieces(128, pieces),
          .bands = {{.lo = 0}},
          .scale_factor = 1,
          .key_bias = bias};
}

template <class T>
std::vector<double> statistics(const Attention<T>& attention) {
  std::vector<double> all;
  const auto& results = attention.results();
  for (std::size_t i = 0; i < results.lse[0].size(); ++i) {
    all.push_back(static_cast<double>(results.lse[0][i]) +
                  static_cast<double>(distattn::fp16_to_float(results.low[0][i])));
  }
  return all;
}

/// Largest change of a statistic that carries make, one between every two pieces.
template <class T>
double change_in_pieces(float bias, std::int64_t pieces, int architecture) {
  const AttentionCase once = case_with_bias(bias, 1), carried = case_with_bias(bias, pieces);
  Attention<T> at_once(once, scores_seed), in_pieces(carried, scores_seed);
  attend_in_pieces(once, at_once, architecture);
  attend_in_pieces(carried, in_pieces, architecture);
  const std::vector<double> want = statistics(at_once), got = statistics(in_pieces);
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
  return worst;
}

/// How far dq is from the exact one after those carries.
double error_with_shared_component(float bias, std::int64_t pieces) {
  const AttentionCase c = case_with_bias(bias, pieces);
  Attention<float> attention(c, scores_seed);
  attend_in_pieces(c, attention, 80);
  differentiate(c, attention, 80, ways_backward(80)[0]);
  return attention.mean_query_gradient_error();
}

template <class T>
void check_carries() {
  for (const int architecture : generations<T>()) {
    for (const float bias : {0.0f, 300.0f, 900.0f}) {
      CAPTURE(name_of(Attention<T>::dtype()), architecture, bias);
      CHECK(change_in_pieces<T>(bias, 32, architecture) < 1.5e-6);
    }
  }
}

}  // namespace

TEST_CASE("carries lose nothing with the size of scores", "[simt][scores][again]") {
  check_carries<float>();
  check_carries<Bf16>();
  check_carries<Fp16>();
}

TEST_CASE("a component that keys share costs as much accuracy however often statistics are carried",
          "[simt][scores][again]") {
  for (const std::int64_t pieces : {1, 4, 16, 64}) {
    CAPTURE(pieces);
    CHECK(error_with_shared_component(0, pieces) < 5e-7);
    CHECK(error_with_shared_component(300, pieces) < 1.5e-5);
    CHECK(error_with_shared_component(900, pieces) < 4e-5);
  }
}

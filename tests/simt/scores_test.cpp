/// Forward and backward round scores alike, and statistics lose nothing with the size of scores: what follows holds to
/// the last bit, or where scores are in the hundreds, thousands and beyond.

#include <cmath>

#include "catch.hpp"
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
void check_alone(float element, double scale_factor) {
  INFO(name_of(Attention<T>::dtype()) << ", elements of " << element << ", scale " << scale_factor << "/8");
  const AttentionCase c{.name = "alone",
                        .queries = {{0, 70}},
                        .keys = {{0, 20}, {20, 1}, {21, 49}},
                        .bands = {{.lo = 0, .hi = 0}},
                        .scale_factor = scale_factor,
                        .all = element};
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

}  // namespace

TEST_CASE("a row that sees itself alone weighs its key by 1", "[simt][scores]") {
  for (const float element : {0.3f, 2.0f, 3.7f, 11.3f, 100.0f, 1234.5f, 45678.9f}) {
    check_alone<float>(element, 1);
    check_alone<float>(element, -1);
    check_alone<Bf16>(element, 1);
    check_alone<Fp16>(element, 1.3);
  }
  check_alone<float>(133120.0f, 1);
  check_alone<Bf16>(133120.0f, 1);
  check_alone<Bf16>(350000.0f, 1);  // a score of 1e12
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

TEST_CASE("weights are no larger than 1, however large scores are", "[simt][scores]") {
  check_equals<float>(3.7f, 1 + 1e-6);
  check_equals<float>(100.0f, 1 + 1e-5);
  check_equals<float>(12345.6f, 1.1);
  check_equals<float>(133120.0f, 72);
  check_equals<Bf16>(3.7f, 1 + 0x1p-8);
  check_equals<Bf16>(133120.0f, 72);
}

namespace {

/// Of a problem whose keys have a component that all tokens share, as models with a bias of their keys have, and of
/// `pieces` carries: how far dq is from the exact one.
template <class T>
double error_with_shared_component(float bias, std::int64_t pieces, int architecture,
                                   const std::vector<TilePass>& passes) {
  const AttentionCase c{.name = "keys with a bias",
                        .queries = {{0, 128}},
                        .keys = in_pieces(128, pieces),
                        .bands = {{.lo = 0}},
                        .scale_factor = 1,
                        .key_bias = bias};
  Attention<T> attention(c, scores_seed);
  attend_in_pieces(c, attention, architecture);
  differentiate(c, attention, architecture, passes);
  return attention.mean_query_gradient_error();
}

}  // namespace

TEST_CASE("a component that keys share costs no accuracy, however often statistics are carried", "[simt][scores]") {
  for (const std::int64_t pieces : {1, 4, 16, 64}) {
    for (const float bias : {0.0f, 300.0f, 900.0f}) {
      CAPTURE(pieces, bias);
      const double e = error_with_shared_component<float>(bias, pieces, 80, ways_backward(80)[0]);
      WARN(pieces << " " << bias << " " << e);
      CHECK(e < 2e-5);
      for (const int architecture : generations<Bf16>()) {
        for (const auto& passes : ways_backward(architecture)) {
          const double e = error_with_shared_component<Bf16>(bias, pieces, architecture, passes);
          WARN("bf16 " << architecture << " " << pieces << " " << bias << " " << e);
        }
      }
    }
  }
}

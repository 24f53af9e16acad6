/// Every attention kernel against float64: odd sizes, all kinds of bands, element types and head dimensions.

#include "catch.hpp"
#include "simt/attention_run.hpp"
#include "support/sanitized.hpp"

namespace {

using namespace distattn::kernels::cuda;
using distattn::Band;
using distattn::kernels::Bf16;
using distattn::kernels::Fp16;
using simt::Attention;
using simt::AttentionCase;
using simt::check;
using simt::kernel_for;
using simt::launch;
using simt::shape_of;

/// The kernels that only Hopper has; backward first those that give the same bits every time, then all in one.
template <class T>
void check_on_hopper(const AttentionCase& c, unsigned seed) {
  INFO(c.name << ", " << name_of(Attention<T>::dtype()) << ", head dimension " << c.head_dim << "/" << c.value_dim
              << ", seed " << seed << ", sm_90a");
  if (!simt::has_hopper_units()) return;
  Attention<T> attention(c, seed);
  const AttendKernel& forward = kernel_for<T>(TilePass::forward, c, 90);
  REQUIRE(forward.architecture == 90);
  launch(forward, AttendPlan(attention.forward(), forward.tile, forward.describe), seed);
  CHECK(attention.forward_error() < attention.tolerance());

  for (const TilePass pass : {TilePass::query_gradient, TilePass::key_gradients}) {
    const AttendKernel& backward = kernel_for<T>(pass, c, 90);
    REQUIRE(backward.architecture == 90);
    launch(backward, AttendPlan(attention.backward(), backward.owner, backward.tile, backward.describe), seed);
  }
  CHECK(attention.query_gradient_error() < attention.tolerance());
  CHECK(attention.key_gradients_error() < attention.tolerance());

  const AttendKernel* gradients = find_attend_kernel({TilePass::gradients, shape_of<T>(c)}, {90});
  if (gradients == nullptr) return;
  Attention<T> again(c, seed);
  again.clear_query_gradients();
  launch(*gradients, AttendPlan(again.backward(), gradients->owner, gradients->tile, gradients->describe), seed);
  CHECK(again.query_gradient_error() < again.tolerance());
  CHECK(again.key_gradients_error() < again.tolerance());
}

std::vector<Band> documents(std::initializer_list<std::int64_t> lengths) {
  std::vector<Band> bands;
  std::int64_t begin = 0;
  for (std::int64_t length : lengths) {
    bands.push_back({begin, begin + length, begin, begin + length, 0});
    begin += length;
  }
  return bands;
}

const Band full{}, causal{.lo = 0};
const std::vector<Band> sinks_and_window{{.k1 = 3, .lo = 0}, {.k0 = 3, .lo = 0, .hi = 20}};

std::vector<AttentionCase> mask_cases() {
  return cases_to_run<AttentionCase>(
      {
          {.name = "one token", .queries = {{0, 1}}, .keys = {{0, 1}}, .bands = {causal}},
          {.name = "causal", .queries = {{0, 200}}, .keys = {{0, 200}}, .bands = {causal}},
          {.name = "full", .queries = {{0, 77}}, .keys = {{0, 131}}, .bands = {full}},
          {.name = "last queries", .queries = {{120, 70}}, .keys = {{0, 190}}, .bands = {causal}},
          {.name = "queries before all keys", .queries = {{-66, 130}}, .keys = {{0, 64}}, .bands = {causal}},
          {.name = "nothing visible", .queries = {{0, 40}}, .keys = {{50, 40}}, .bands = {causal}},
          {.name = "window and sinks", .queries = {{0, 150}}, .keys = {{0, 150}}, .bands = sinks_and_window},
          {.name = "window both ways", .queries = {{0, 99}}, .keys = {{0, 180}}, .bands = {{.lo = -50, .hi = 7}}},
          {.name = "documents",
           .queries = {{0, 200}},
           .keys = {{0, 200}},
           .bands = documents({1, 7, 2, 30, 0, 3, 64, 5, 70, 18})},
          {.name = "striped, rank before", .queries = {{1, 90, 4}}, .keys = {{3, 90, 4}}, .bands = {causal}},
          {.name = "striped, rank after",
           .queries = {{3, 90, 4}},
           .keys = {{1, 90, 4}},
           .bands = {{.lo = 0, .hi = 61}}},
          {.name = "unequal strides", .queries = {{5, 70, 3}}, .keys = {{2, 140, 2}}, .bands = {{.lo = 0, .hi = 100}}},
          {.name = "zigzag",
           .queries = {{0, 33}, {231, 33}},
           .keys = {{0, 33}, {231, 33}, {33, 130}},
           .bands = {causal}},
          {.name = "an empty segment",
           .queries = {{0, 0}, {40, 10}},
           .keys = {{0, 40}, {40, 0}, {40, 10}},
           .bands = {causal}},
          {.name = "carried",
           .queries = {{50, 70}, {0, 20}},
           .keys = {{0, 110}, {110, 30}},
           .bands = {causal},
           .carry = true},
          {.name = "carried, nothing visible", .queries = {{0, 5}}, .keys = {{9, 5}}, .bands = {causal}, .carry = true},
          {.name = "grouped heads",
           .queries = {{0, 70}},
           .keys = {{0, 70}},
           .bands = {causal},
           .heads = {.q_count = 6, .kv_count = 2, .per_kv = 3},
           .batch = 2},
          {.name = "a group that cuts key heads",
           .queries = {{0, 50}},
           .keys = {{0, 50}},
           .bands = {causal},
           .heads = {.q_count = 4, .kv_count = 3, .q0 = 3, .kv0 = 1, .per_kv = 2}},
      },
      8);
}

struct Dims {
  int head, value;
};
// One or two of each padding: 32, 64, 96, 128, 192/128, 256.
std::vector<Dims> some_dims() {
  return cases_to_run<Dims>({{8, 8}, {40, 64}, {72, 96}, {128, 128}, {192, 128}, {24, 256}});
}
constexpr Dims more_dims[] = {{32, 32}, {64, 64},   {80, 80},   {96, 96}, {104, 16},
                              {8, 64},  {160, 128}, {192, 192}, {256, 8}, {256, 256}};

AttentionCase dimension_case(Dims dims) {
  return {.name = "two segments, carried",
          .queries = {{101, 33}},
          .keys = {{0, 67}, {67, 67}},
          .bands = {causal},
          .head_dim = dims.head,
          .value_dim = dims.value,
          .heads = {.q_count = 2, .kv_count = 1, .per_kv = 2},
          .carry = true};
}

}  // namespace

TEST_CASE("every mask", "[simt]") {
  for (const AttentionCase& c : mask_cases()) {
    check<Bf16>(c, 1);
    check<float>(c, 2);
  }
}

TEST_CASE("every padding of head dimensions", "[simt]") {
  for (const Dims dims : some_dims()) {
    check<Bf16>(dimension_case(dims), 3);
    check<Fp16>(dimension_case(dims), 4);
  }
  check<float>(dimension_case({8, 64}), 5);
  check<float>(dimension_case({72, 40}), 6);
}

TEST_CASE("every mask on Hopper", "[simt]") {
  unsigned seed = 100;
  for (const AttentionCase& c : mask_cases()) {
    check_on_hopper<Bf16>(c, ++seed);
    check_on_hopper<Fp16>(c, ++seed);
  }
}

/// The case with `times` as many query heads for each key head.
AttentionCase with_more_query_heads(AttentionCase c, int times) {
  c.heads.q_count *= times;
  c.heads.per_kv *= times;
  c.heads.q0 *= times;
  return c;
}

TEST_CASE("few thread blocks on Hopper", "[simt]") {
  if (!simt::has_hopper_units()) return;
  for (const AttentionCase& each : mask_cases()) {
    const AttentionCase c = with_more_query_heads(each, 3);
    INFO(c.name);
    Attention<Bf16> attention(c, 160);
    const AttendKernel& forward = kernel_for<Bf16>(TilePass::forward, c, 90);
    launch(forward, AttendPlan(attention.forward(), forward.tile, forward.describe), 160, 2);
    CHECK(attention.forward_error() < attention.tolerance());
  }
}

TEST_CASE("query heads that share a block on Hopper", "[simt]") {
  if (!simt::has_hopper_units()) return;
  for (const AttentionCase& each : mask_cases()) {
    const AttentionCase c = with_more_query_heads(each, 2);
    INFO(c.name);
    Attention<Bf16> attention(c, 170);
    const AttendKernel& forward = kernel_for<Bf16>(TilePass::forward, c, 90, 1);
    REQUIRE(forward.tile.heads == 2);
    launch(forward, AttendPlan(attention.forward(), forward.tile, forward.describe), 170);
    CHECK(attention.forward_error() < attention.tolerance());
  }
}

TEST_CASE("wide heads on Hopper", "[simt][again]") {
  for (AttentionCase c : mask_cases()) {
    c.head_dim = 192;
    c.value_dim = 128;
    check_on_hopper<Bf16>(c, 140);
  }
}

/// With all that scores may have: the case's heads are some of two more.
AttentionCase with_everything(AttentionCase c) {
  c.softcap = 2.5;
  for (int head = 0; head < c.heads.q_count; ++head) c.slopes.push_back(0.06 - 0.02 * head);
  c.dropout = {.probability = 0.3, .seed = simt::dropout_seed, .offset = simt::dropout_offset};
  c.dropout.heads = c.heads.q0 + c.heads.q_count + 2;
  c.max_logit = true;
  return c;
}

TEST_CASE("every mask with all that scores may have", "[simt]") {
  for (const AttentionCase& each : mask_cases()) {
    const AttentionCase c = with_everything(each);
    check<Bf16>(c, 51);
    check<float>(c, 52);
  }
}

/// Hopper has kernels of its own for the forward pass and for gradients in any order.
template <class T>
void check_everything_on_hopper(const AttentionCase& c, unsigned seed) {
  INFO(c.name << ", " << name_of(Attention<T>::dtype()) << ", head dimension " << c.head_dim << "/" << c.value_dim
              << ", seed " << seed << ", sm_90a");
  if (!simt::has_hopper_units()) return;
  Attention<T> attention(c, seed);
  attention.clear_query_gradients();
  for (const TilePass pass : {TilePass::forward, TilePass::gradients}) {
    const AttendKernel& kernel = kernel_for<T>(pass, c, 90);
    REQUIRE(kernel.architecture == 90);
    REQUIRE(kernel.features.has(distattn::Feature::softcap));
    launch(kernel,
           pass == TilePass::forward ? AttendPlan(attention.forward(), kernel.tile, kernel.describe)
                                     : AttendPlan(attention.backward(), kernel.owner, kernel.tile, kernel.describe),
           seed);
  }
  CHECK(attention.forward_error() < attention.tolerance());
  CHECK(attention.query_gradient_error() < attention.tolerance());
  CHECK(attention.key_gradients_error() < attention.tolerance());
}

TEST_CASE("every mask on Hopper with all that scores may have", "[simt]") {
  unsigned seed = 60;
  for (const AttentionCase& each : mask_cases()) {
    const AttentionCase c = with_everything(each);
    check_everything_on_hopper<Bf16>(c, ++seed);
    if (each.name == "carried" || each.name == "unequal strides") check_everything_on_hopper<Fp16>(c, ++seed);
  }
  for (const Dims dims : {Dims{128, 128}, Dims{72, 96}}) {
    check_everything_on_hopper<Bf16>(with_everything(dimension_case(dims)), ++seed);
  }
}

TEST_CASE("each thing that scores may have, alone", "[simt][again]") {
  for (const AttentionCase& each : mask_cases()) {
    if (each.name != "causal" && each.name != "striped, rank after" && each.name != "carried" &&
        each.name != "a group that cuts key heads") {
      continue;
    }
    const AttentionCase all = with_everything(each);
    AttentionCase capped = each, biased = each, dropped = each, largest = each;
    capped.softcap = all.softcap;
    biased.slopes = all.slopes;
    dropped.dropout = all.dropout;
    largest.max_logit = true;
    largest.scale_factor = -1.3;
    for (const AttentionCase& c : {capped, biased, dropped, largest}) {
      check<Fp16>(c, 53);
      check<float>(c, 54);
    }
  }
}

TEST_CASE("every padding of head dimensions with all that scores may have", "[simt]") {
  for (const Dims dims : some_dims()) check<Bf16>(with_everything(dimension_case(dims)), 55);
}

TEST_CASE("a negative scale", "[simt]") {
  const AttentionCase c{
      .name = "negative scale", .queries = {{0, 70}}, .keys = {{0, 150}}, .bands = {{.hi = 60}}, .scale_factor = -1.3};
  check<Bf16>(c, 15);
  check<float>(c, 15);
  check_on_hopper<Bf16>(c, 15);
}

TEST_CASE("a scale that is 0 in fp32", "[simt]") {
  const AttentionCase c{
      .name = "no scale", .queries = {{0, 70}}, .keys = {{0, 150}}, .bands = {causal}, .scale_factor = 1e-50};
  for (const int architecture : {80, 90}) {
    if (architecture == 90 && !simt::has_hopper_units()) continue;
    Attention<Bf16> attention(c, 17);
    const AttendKernel& forward = kernel_for<Bf16>(TilePass::forward, c, architecture);
    launch(forward, AttendPlan(attention.forward(), forward.tile, forward.describe), 17);
    CHECK(attention.forward_error() < attention.tolerance());
  }
}

TEST_CASE("queries that every key they see is far from, on Hopper", "[simt]") {
  // Where there is no key the score is 0, which for such a query would be an infinite weight. Later queries would see
  // keys past the end of the two that there are.
  check_on_hopper<Fp16>({.name = "far", .queries = {{0, 70}}, .keys = {{0, 2}}, .bands = {causal}, .scale_factor = 20},
                        16);
}

TEST_CASE("every padding of head dimensions on Hopper", "[simt]") {
  for (const Dims dims : some_dims()) {
    check_on_hopper<Bf16>(dimension_case(dims), 13);
    check_on_hopper<Fp16>(dimension_case(dims), 14);
  }
}

TEST_CASE("a block that starts after the stop flag is set does nothing", "[simt]") {
  const AttentionCase c{.name = "stopped", .queries = {{0, 20}}, .keys = {{0, 20}}, .bands = {causal}};
  Attention<Bf16> attention(c, 7);
  const AttendKernel& forward = kernel_for<Bf16>(TilePass::forward, c);
  const auto operations = attention.forward();
  const AttendPlan plan(operations, forward.tile);
  const simt::Array<std::byte> bytes(plan.bytes());
  const simt::Array<int> stop(1, 1);
  REQUIRE(simt::run_kernels(7, [&](Stream stream) {
            return forward.launch(plan.params(bytes.data(), stop.data()), plan.grid(), stream);
          }) == 0);
  CHECK(std::isnan(*static_cast<const float*>(operations[0].lse)));
}

TEST_CASE("more head dimensions", "[.long]") {
  for (const Dims dims : more_dims) {
    for (unsigned seed = 10; seed < 13; ++seed) {
      check<Bf16>(dimension_case(dims), seed);
      check<Fp16>(dimension_case(dims), seed);
      check<float>(dimension_case(dims), seed);
      check_on_hopper<Bf16>(dimension_case(dims), seed);
      check_on_hopper<Fp16>(dimension_case(dims), seed);
    }
  }
}

TEST_CASE("every mask with every padding under many seeds", "[.long]") {
  for (const Dims dims : some_dims()) {
    for (AttentionCase c : mask_cases()) {
      c.head_dim = dims.head;
      c.value_dim = dims.value;
      for (unsigned seed = 20; seed < 23; ++seed) {
        check<Bf16>(c, seed);
        check<Fp16>(c, seed);
        check<float>(c, seed);
        check_on_hopper<Bf16>(c, seed);
        check_on_hopper<Fp16>(c, seed);
      }
    }
  }
}

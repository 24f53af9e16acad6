#include "conformance/kernels/suite.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "catch.hpp"
#include "distattn/index.hpp"
#include "kernels/dropout.hpp"
#include "support/allocations.hpp"
#include "support/sanitized.hpp"

namespace distattn::test {

using namespace kernels;

namespace {

// What is lost of the largest of these numbers in the type that keeps them.
double rounding_of(const std::vector<double>& values, DType dtype) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest * (accumulator_of(dtype) == DType::fp64 ? 0x1p-53 : 0x1p-24);
}

// Gradients of the global softmax: lse and delta of all that a query sees, the carry included.
void check_close(const HostKernels& kernels, const TileCase& tile, const CaseResults& value, const CaseResults& exact) {
  const DType accumulator = accumulator_of(tile.shape.dtype);
  const double tolerance = tolerance_of(tile, kernels.coefficients(tile.shape.dtype));
  CHECK(relative_l2(value.o, exact.o) <= tolerance);
  CHECK(largest_difference(value.lse, exact.lse) <=
        tolerance_of(tile, accumulator) + rounding_of(exact.lse, tile.shape.dtype));
  CHECK(relative_l2(value.dq, exact.dq, exact.dq_terms) <= tolerance);
  for (std::size_t i = 0; i < tile.sides.size(); ++i) {
    CHECK(relative_l2(value.dk[i], exact.dk[i], exact.dk_terms[i]) <= tolerance);
    CHECK(relative_l2(value.dv[i], exact.dv[i]) <= tolerance);
  }
}

/// What is right for a case, computed when the first of several tables is compared with it: that takes longer than what
/// tables take.
const CaseResults& exactly(const std::string& name, const TileCase& tile, const CaseInputs& inputs, Team& team) {
  static std::map<std::string, CaseResults> known;
  const auto [entry, is_new] = known.try_emplace(name);
  if (is_new) entry->second = run_exactly(tile, inputs, team);
  return entry->second;
}

bool computes(const HostKernels& kernels, const TileShape& shape) {
  return features_of(shape).without(kernels.features).empty();
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

bool same_bits(const CaseResults& a, const CaseResults& b) {
  bool same = same_bits(a.o, b.o) && same_bits(a.lse, b.lse) && same_bits(a.dq, b.dq);
  for (std::size_t i = 0; i < a.dk.size(); ++i)
    same = same && same_bits(a.dk[i], b.dk[i]) && same_bits(a.dv[i], b.dv[i]);
  return same;
}

}  // namespace

void check_against_float64(const HostKernels& kernels, const std::vector<TileCase>& cases,
                           const std::vector<Exclusion>& exclusions) {
  Team team(2);
  std::set<std::string> names;
  for (const TileCase& tile : cases) {
    REQUIRE(names.insert(tile.name).second);  // by which what is right is known
    const auto excluded = std::find_if(exclusions.begin(), exclusions.end(),
                                       [&](const Exclusion& exclusion) { return exclusion.matches(tile); });
    INFO(kernels.name << ": " << tile.name);
    if (excluded != exclusions.end()) {
      INFO("excluded: " << excluded->reason);
      CHECK_FALSE(computes(kernels, tile.shape));
      continue;
    }
    REQUIRE(computes(kernels, tile.shape));
    const CaseInputs inputs = inputs_of(tile);
    const CaseResults& exact = exactly(tile.name, tile, inputs, team);
    check_close(kernels, tile, run_case(tile, inputs, kernels, team, &exact), exact);
  }
}

void check_thread_counts(const HostKernels& kernels, const std::vector<TileCase>& cases) {
  Team alone(1);
  for (const TileCase& tile : cases) {
    if (!computes(kernels, tile.shape)) continue;
    const CaseInputs inputs = inputs_of(tile);
    const CaseResults one = run_case(tile, inputs, kernels, alone, nullptr);
    for (int threads : {2, 3, 4}) {
      INFO(kernels.name << ": " << tile.name << ", " << threads << " threads");
      Team team(threads);
      CHECK(same_bits(run_case(tile, inputs, kernels, team, nullptr), one));
    }
  }
}

void check_spread_rows(const HostKernels& kernels, const std::vector<TileCase>& cases) {
  Team team(1);
  for (const TileCase& tile : cases) {
    if (!computes(kernels, tile.shape)) continue;
    INFO(kernels.name << ": " << tile.name);
    const CaseInputs inputs = inputs_of(tile);
    const CaseResults packed = run_case(tile, inputs, kernels, team, nullptr);
    CHECK(same_bits(run_case(tile, inputs, kernels, team, nullptr, Arrangement::spread), packed));
  }
}

void check_reach_of_nan(const HostKernels& kernels) {
  Team alone(1), three(3);
  const std::vector<TileCase> cases{
      {"causal", {DType::fp32, 1, {2, 1, 0, 0, 2}, 24, 40, {0.2}}, {0, 300, 1}, {{{0, 300, 1}, {{.lo = 0}}}}},
      {"window", {DType::fp32, 1, {2, 1, 0, 0, 2}, 24, 40, {0.2}}, {0, 300, 1}, {{{0, 300, 1}, {{.lo = 0, .hi = 40}}}}},
      {"full", {DType::fp32, 1, {2, 1, 0, 0, 2}, 24, 40, {0.2}}, {0, 200, 1}, {{{0, 200, 1}, {{}}}}},
      {"wide heads", {DType::fp32, 1, {2, 1, 0, 0, 2}, 72, 104, {0.1}}, {0, 200, 1}, {{{0, 200, 1}, {{.lo = 0}}}}},
      {"some keys", {DType::fp32, 1, {2, 1, 0, 0, 2}, 24, 40, {0.2}}, {0, 200, 1}, {{{0, 200, 1}, {{.k1 = 40}}}}},
      {"far keys",
       {DType::fp32, 1, {1, 1, 0, 0, 1}, 24, 40, {0.2}},
       {0, 480, 1},
       {{{0, 480, 1}, {{.lo = 0, .hi = 300}}}}},
      {"few queries", {DType::fp32, 1, {6, 2, 0, 0, 3}, 24, 40, {0.2}}, {98, 4, 1}, {{{0, 160, 1}, {{.lo = 0}}}}},
      {"heads together", {DType::fp32, 1, {8, 1, 0, 0, 8}, 24, 40, {0.2}}, {98, 30, 1}, {{{0, 160, 1}, {{.lo = 0}}}}},
      {"half", {DType::fp16, 1, {2, 1, 0, 0, 2}, 24, 40, {0.2}}, {0, 200, 1}, {{{0, 200, 1}, {{.lo = 0}}}}, true},
      {"bf16", {DType::bf16, 1, {2, 1, 0, 0, 2}, 24, 40, {0.2}}, {0, 201, 1}, {{{0, 201, 1}, {{.lo = 0}}}}, true},
      {"bf16 in a window",
       {DType::bf16, 1, {2, 1, 0, 0, 2}, 24, 40, {0.2}},
       {0, 301, 1},
       {{{0, 301, 1}, {{.lo = 0, .hi = 41}}}},
       true}};
  for (const TileCase& tile : cases) {
    const CaseInputs sound = inputs_of(tile);
    for (const double poison : cases_to_run<double>({std::nan(""), HUGE_VAL})) {
      for (const std::size_t row : cases_to_run<std::size_t>({100, 3, 150})) {
        for (const int which : {0, 1, 2, 3}) {
          const std::string name = tile.name + ": " + std::to_string(poison) + " in row " + std::to_string(row) +
                                   " of " + std::array{"q", "k", "v", "do"}[index(which)];
          INFO(kernels.name << ", " << name);
          const auto dim = static_cast<std::size_t>(which < 2 ? tile.shape.head_dim : tile.shape.value_dim);
          CaseInputs inputs = sound;
          auto& values = which == 0 ? inputs.q : which == 1 ? inputs.k[0] : which == 2 ? inputs.v[0] : inputs.d_o;
          values[row % (values.size() / dim) * dim + (row == 100 ? 5 : dim - 1)] = poison;
          const CaseResults& exact = exactly("poison, " + name, tile, inputs, alone);
          const CaseResults results = run_case(tile, inputs, kernels, alone, &exact);
          check_close(kernels, tile, results, exact);
          if (row == 150) CHECK(same_bits(run_case(tile, inputs, kernels, three, &exact), results));
        }
      }
    }
  }
}

void check_long_sums(const HostKernels& kernels) {
  Team team(1);
  const TileCase tile{
      "equal keys", {DType::fp32, 1, {}, 8, 8, {0.3}}, {0, 2, 1}, {{{0, 100000, 1}, {{}}}, {{0, 100000, 1}, {{}}}}};
  CaseInputs inputs = inputs_of(tile);
  std::fill(inputs.q.begin(), inputs.q.end(), 0.0);
  for (auto& v : inputs.v) std::fill(v.begin(), v.end(), static_cast<double>(0.7f));
  INFO(kernels.name);
  check_close(kernels, tile, run_case(tile, inputs, kernels, team, nullptr), run_exactly(tile, inputs, team));
}

void check_common_keys(const HostKernels& kernels) {
  Team team(1);
  const TileCase tile{"common keys", {DType::fp32, 1, {}, 64, 64, {0.125}}, {0, 300, 1}, {{{0, 300, 1}, {{.lo = 0}}}}};
  CaseInputs inputs = inputs_of(tile);
  // Scores of about 800 that differ by about 1.
  for (std::size_t i = 0; i < inputs.q.size(); ++i) {
    inputs.q[i] = static_cast<float>(10 + inputs.q[i] * 0.1);
    inputs.k[0][i] = static_cast<float>(10 + inputs.k[0][i] * 0.1);
  }
  const CaseResults exact = run_exactly(tile, inputs, team);
  const CaseResults results = run_case(tile, inputs, kernels, team, nullptr);
  INFO(kernels.name);
  CHECK(relative_l2(results.dq, exact.dq) <= 1e-3);
  CHECK(relative_l2(results.dk[0], exact.dk[0]) <= 1e-3);
}

void check_large_carries(const HostKernels& kernels) {
  Team team(1);
  for (const std::int64_t queries : {3, 100}) {
    for (const double size : {2.0, 570.0, -900.0, 1e5}) {
      TileCase tile{"large carries", {DType::fp32, 1, {}, 64, 64, {0.125}}, {0, queries, 1}, {}};
      for (std::int64_t piece = 0; piece < 16; ++piece) tile.sides.push_back({{piece * 40, 40, 1}, {{}}});
      CaseInputs inputs = inputs_of(tile);
      // A component that all keys share: scores of about `size`.
      for (std::size_t row = 0; row < inputs.q.size(); row += 64) inputs.q[row + 3] = 1;
      for (auto& k : inputs.k) {
        for (std::size_t row = 0; row < k.size(); row += 64) k[row + 3] = static_cast<float>(size * 8);
      }
      INFO(kernels.name << ": scores of about " << size << ", " << queries << " queries");
      const CaseResults at_once = run_case(tile, inputs, kernels, team, nullptr);

      TileCase one = tile;
      CaseInputs part = inputs;
      CaseResults carried;
      for (std::size_t piece = 0; piece < tile.sides.size(); ++piece) {
        one.sides = {tile.sides[piece]};
        one.carry = piece > 0;
        part.k = {inputs.k[piece]};
        part.v = {inputs.v[piece]};
        part.dk = {inputs.dk[piece]};
        part.dv = {inputs.dv[piece]};
        carried = run_case(one, part, kernels, team, nullptr);
        part.o = carried.o;
        part.lse = carried.lse;
        part.lse_low = carried.lse_low;
      }
      const double rounding = 1e-6 + std::abs(size) * 0x1p-34;  // of a low part as fp16
      CHECK(relative_l2(carried.o, at_once.o) <= rounding);
      for (std::size_t row = 0; row < carried.lse.size(); ++row) {
        const double apart = (carried.lse[row] - at_once.lse[row]) + (carried.lse_low[row] - at_once.lse_low[row]);
        CHECK(std::abs(apart) <= rounding);
      }
    }
  }
}

void check_lone_keys(const HostKernels& kernels) {
  Team team(1);
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const int dim : cases_to_run<int>({24, 8, 64, 80, 128})) {
      for (const std::int64_t rows : cases_to_run<std::int64_t>({9, 1, 4, 8, 33, 16, 17, 150})) {
        for (const double scale : {0.125, -0.3, 3e3, -1e9}) {
          const TileCase tile{"lone keys",
                              {dtype, 1, {3, 1, 0, 0, 3}, dim, dim == 24 ? 40 : dim, {scale}},
                              {0, rows, 1},
                              {{{0, rows, 1}, {{.lo = 0, .hi = 0}}}}};
          CaseInputs inputs = inputs_of(tile);
          for (double& value : inputs.d_o) value = std::round(value * 4);  // whose sums are exact
          INFO(kernels.name << ": " << name_of(dtype) << ", head dimension " << dim << ", " << rows << " rows, scale "
                            << scale);
          const CaseResults results = run_case(tile, inputs, kernels, team, nullptr);
          const auto width = static_cast<std::size_t>(tile.shape.value_dim);
          bool exact_o = true, exact_dv = true;
          for (std::size_t i = 0; i < results.dv[0].size(); ++i) {
            double given = 0;
            for (std::size_t h = 0; h < 3; ++h) {
              const std::size_t at = h * static_cast<std::size_t>(rows) * width + i;
              given += inputs.d_o[at];
              exact_o = exact_o && results.o[at] == inputs.v[0][i];
            }
            exact_dv = exact_dv && results.dv[0][i] == given;
          }
          CHECK(exact_o);
          CHECK(exact_dv);
        }
      }
    }
  }
}

void check_lone_dropped(const HostKernels& kernels) {
  static constexpr Dropout draws{.probability = 0.3, .seed = 5, .offset = 1, .heads = 3};
  Team team(1);
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const std::int64_t first_key : {0, 1}) {  // with whole draws, and without
      for (const std::int64_t rows : {1, 17, 150}) {
        TileCase tile{"lone keys, some dropped",
                      {dtype, 1, {3, 1, 0, 0, 3}, 64, 40, {0.125}},
                      {first_key, rows, 1},
                      {{{first_key, rows, 1}, {{.lo = 0, .hi = 0}}}}};
        tile.shape.dropout = &draws;
        const CaseInputs inputs = inputs_of(tile);
        const CaseResults results = run_case(tile, inputs, kernels, team, nullptr);
        double o_error = 0, dq_error = 0;
        for (std::size_t i = 0; i < results.o.size(); ++i) {
          const auto row = static_cast<std::int64_t>(i) / 40, head = row / rows, position = first_key + row % rows;
          const HeadDropout head_draws(draws, 0, head);
          const double expected = head_draws.factor(position, position) *
                                  inputs.v[0][index((row % rows) * 40 + static_cast<std::int64_t>(i) % 40)];
          o_error = std::max(o_error, std::abs(results.o[i] - expected) - 3e-7 * std::abs(expected));
        }
        for (const double value : results.dq) dq_error = std::max(dq_error, std::abs(value));
        INFO(kernels.name << ": " << name_of(dtype) << ", " << rows << " rows, keys from " << first_key << " on");
        CHECK(o_error <= 0);
        CHECK(dq_error < 1e-4);  // of scores that change nothing: what rounding of products of some 40 leaves
      }
    }
  }
}

void check_tiny_values(const HostKernels& kernels) {
  Team team(1);
  for (const std::int64_t queries : {2, 100}) {
    const TileCase tile{
        "tiny values", {DType::fp32, 1, {2, 1, 0, 0, 2}, 24, 40, {0.2}}, {0, queries, 1}, {{{0, 150, 1}, {{}}}}};
    const CaseInputs usual = inputs_of(tile);
    for (const double size : {1e-30, 1e-34, 1e-37, 1e-39}) {
      CaseInputs inputs = usual;
      for (double& value : inputs.v[0]) value = static_cast<float>(value * size);
      const CaseResults with_values = run_exactly(tile, inputs, team);
      const double rounding = std::max(tolerance_of(tile, DType::fp32), 1e-43 / size);  // of a sum of denormals
      INFO(kernels.name << ": values and gradients of about " << size << ", " << queries << " queries");
      CHECK(relative_l2(run_case(tile, inputs, kernels, team, nullptr).o, with_values.o) <= rounding);
      inputs = usual;
      for (double& value : inputs.d_o) value = static_cast<float>(value * size);
      const CaseResults with_gradients = run_exactly(tile, inputs, team);
      CHECK(relative_l2(run_case(tile, inputs, kernels, team, nullptr).dv[0], with_gradients.dv[0]) <= rounding);
    }
  }
}

void check_subnormal_halves(const HostKernels& kernels) {
  Team team(1);
  for (const std::int64_t queries : {2, 100}) {
    const TileCase tile{"subnormal halves",
                        {DType::fp16, 1, {2, 1, 0, 0, 2}, 24, 40, {std::ldexp(0.2, 34)}},
                        {100, queries, 1},
                        {{{0, 150, 1}, {{.lo = 0}}}}};
    CaseInputs inputs = inputs_of(tile);
    for (auto* values : {&inputs.q, &inputs.k[0], &inputs.v[0]}) {
      for (double& value : *values) value = std::ldexp(std::round(value * 128), -24);
    }
    INFO(kernels.name << ", " << queries << " queries");
    check_close(kernels, tile, run_case(tile, inputs, kernels, team, nullptr), run_exactly(tile, inputs, team));
  }
}

void check_empty_rows(const HostKernels& kernels) {
  Team team(1);
  for (const auto& [queries, carry] :
       {std::pair(Run{0, 100, 1}, false), {{0, 100, 1}, true}, {{57, 4, 1}, false}, {{57, 4, 1}, true}}) {
    const TileCase tile{
        "empty rows", {DType::fp32, 1, {}, 32, 32, {0.3}}, queries, {{{0, 100, 1}, {{.lo = 60}}}}, carry};
    INFO(kernels.name << ", " << queries.count << " queries, carry " << carry);
    const CaseInputs inputs = inputs_of(tile);
    const CaseResults results = run_case(tile, inputs, kernels, team, nullptr);
    for (std::size_t row = 0; row < static_cast<std::size_t>(60 - queries.start); ++row) {
      CHECK(results.lse[row] == (carry ? inputs.lse[row] : -INFINITY));
      for (std::size_t x = row * 32; x < (row + 1) * 32; ++x) {
        CHECK(results.o[x] == (carry ? inputs.o[x] : 0));
        CHECK(results.dq[x] == (carry ? inputs.dq[x] : 0));
      }
    }
  }
}

std::size_t allocations_of(const std::function<void()>& call) {
  const std::size_t before = allocations;
  call();
  return allocations - before;
}

void check_allocations(const HostKernels& kernels, std::size_t by_launch) {
  Team team(2);
  const StopFlag never{false};
  const Band causal{.lo = 0};
  std::vector<float> q(4 * 200 * 32), k(q), v(q), o(q), d_o(q), dq(q), dk(q), dv(q), lse(4 * 200), delta(lse);
  const auto rows = [](std::vector<float>& values) { return packed_rows(values.data(), 4, 200, 32); };
  const KeySide side{rows(k), rows(v), {0, 200, 1}, {&causal, 1}, rows(dk), rows(dv)};
  const TileShape shape{DType::fp32, 1, {4, 4, 0, 0, 1}, 32, 32, {0.3}};
  const AttendArgs forward{shape, rows(q), {0, 200, 1}, {&side, 1}, rows(o), lse.data()};
  const AttendBackwardArgs backward{.shape = shape,
                                    .q = rows(q),
                                    .d_o = rows(d_o),
                                    .lse = lse.data(),
                                    .delta = delta.data(),
                                    .queries = {0, 200, 1},
                                    .keys = {&side, 1},
                                    .dq = rows(dq)};
  const MergeArgs merge{
      .rows = 800, .dim = 32, .o = o.data(), .lse = lse.data(), .from_o = dq.data(), .from_lse = delta.data()};
  const AccumulateArgs accumulate{DType::fp32, 4 * 200 * 32, dk.data(), DType::fp32, dv.data()};
  const auto run = [&] {
    kernels.attend({&forward, 1}, team, never);
    kernels.attend_backward({&backward, 1}, team, never);
    kernels.merge({&merge, 1}, team, never);
    kernels.accumulate({&accumulate, 1}, team, never);
  };
  // Which thread takes which item is up to chance, and scratch is a thread's own: calls allocate until each has had
  // some.
  constexpr int times = 20;
  constexpr std::size_t launches = 3;  // one forward, two backward
  bool steady = false;
  for (int round = 0; round < 50 && !steady; ++round) {
    const std::size_t allocated = allocations_of([&] {
      for (int again = 0; again < times; ++again) run();
    });
    steady = allocated <= times * launches * by_launch;
  }
  INFO(kernels.name << " may allocate " << by_launch << " times in a launch");
  CHECK(steady);
}

}  // namespace distattn::test

/// The kernels for this processor's vectors against float64, with the instruction set that DISTATTN_ISA names.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <vector>

#include "catch.hpp"
#include "conformance/kernels/suite.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "kernels/vector/cpu.hpp"
#include "kernels/vector/select.hpp"

using namespace distattn;
using namespace distattn::test;

namespace {

constexpr unsigned seed = 20240611;

const std::vector<Exclusion> no_fp64{
    {[](const TileCase& tile) { return tile.shape.dtype == DType::fp64; }, "vector kernels compute in fp32"}};

// Says so where the processor lacks the instruction set that is asked for; one that does not exist is a failure.
bool usable() {
  try {
    kernels::vector::vector_kernels();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::environment) throw;
    std::cout << "SKIPPED: " << error.what() << '\n';
    return false;
  }
}

}  // namespace

TEST_CASE("cpu kernels conform", "[cpu]") {
  if (!usable()) return;
  const auto& table = kernels::cpu_kernels();
  check_against_float64(table, named_cases(), no_fp64);
  check_against_float64(table, random_cases(seed, 200), no_fp64);
  check_reach_of_nan(table);
  check_empty_rows(table);
  check_allocations(table);
}

TEST_CASE("cpu kernels round well", "[cpu][again]") {
  if (!usable()) return;
  const auto& table = kernels::cpu_kernels();
  check_long_sums(table);
  check_common_keys(table);
  check_subnormal_halves(table);
  check_large_carries(table);
  check_lone_keys(table);
  check_lone_dropped(table);
  check_tiny_values(table);
}

TEST_CASE("cpu kernels' capped scores are within 5e-7 of their size, whatever their neighbours are", "[cpu]") {
  if (!usable()) return;
  // Rows that see one key: their score is their lse. From far below the cap past where one formula follows another.
  constexpr std::int64_t rows = 3000;
  constexpr double cap = 3;
  TileCase tile{"capped scores",
                {DType::fp32, 1, {1, 1, 0, 0, 1}, 8, 8, {.scale = 1, .softcap = cap}},
                {0, rows, 1},
                {{{0, rows, 1}, {{.lo = 0, .hi = 0}}}}};
  const auto product_of = [](std::int64_t n) {
    return static_cast<float>((n % 2 == 0 ? cap : -cap) * 10 * std::pow(static_cast<double>(n) / rows, 3));
  };
  // Of every product, where that of row r is number r · step: lanes of one vector are alike with 1, and far apart with
  // any number that has no factor in common with the rows.
  const auto scores_in_steps_of = [&](std::int64_t step) {
    CaseInputs inputs = inputs_of(tile);
    for (std::int64_t x = 0; x < 8 * rows; ++x) {
      inputs.q[index(x)] = x % 8 == 0 ? static_cast<double>(product_of(x / 8 * step % rows)) : 0;
      inputs.k[0][index(x)] = x % 8 == 0 ? 1 : 0;
    }
    kernels::Team team(1);
    const CaseResults results = run_case(tile, inputs, kernels::cpu_kernels(), team, nullptr);
    std::vector<double> scores(index(rows));
    for (std::int64_t row = 0; row < rows; ++row) scores[index(row * step % rows)] = results.lse[index(row)];
    return scores;
  };
  const std::vector<double> scores = scores_in_steps_of(1);
  double most = 0;
  for (std::int64_t n = 1; n < rows; ++n) {
    const double exact = cap * std::tanh(static_cast<double>(product_of(n)) / cap);
    most = std::max(most, std::abs(scores[index(n)] / exact - 1));
    CHECK(std::abs(scores[index(n)]) <= cap);
  }
  CHECK(scores[0] == 0);
  CHECK(most < 5e-7);
  CHECK((scores_in_steps_of(1237) == scores));  // not printed: there are thousands
}

TEST_CASE("cpu results do not depend on where rows lie", "[cpu]") {
  if (!usable()) return;
  check_spread_rows(kernels::cpu_kernels(), named_cases());
  check_spread_rows(kernels::cpu_kernels(), random_cases(seed, 100));
}

TEST_CASE("cpu results do not depend on the number of threads", "[cpu][threads]") {
  if (!usable()) return;
  check_thread_counts(kernels::cpu_kernels(), named_cases());
  check_thread_counts(kernels::cpu_kernels(), random_cases(seed, 50));
}

/// What judges results: scores so large that they round by much, and numbers so small that types hold few of their
/// bits.

#include <algorithm>
#include <cmath>

#include "catch.hpp"
#include "tests/equivalence/judge_case.hpp"

using namespace distattn;
using test::documents;
using test::multiply;
using Case = test::JudgedCase;

TEST_CASE("the logarithm of large scores may be as far off as its type holds it", "[judge]") {
  const float of_q = GENERATE(1e5f, 1e8f, 1e12f);
  Case made(documents({0, 5, 384}));
  multiply(made.q, 0, made.q.size(), of_q);
  made.expect();
  CHECK(made.worst(Result::lse).excess <= 0.5);
  CHECK(made.judge().comparison(Result::o).worst.excess <= 0.5);
  *made.row(Result::lse, 200, 1) *= 1.00001;
  CHECK(made.worst(Result::lse).excess > 1);
}

TEST_CASE("weights that are certain leave nothing to excuse, however large their scores", "[judge]") {
  struct Damage {
    Result result;
    double by;
    bool whole_head;
  };
  const auto [result, by, whole_head] =
      GENERATE(Damage{Result::dv, 0, false}, Damage{Result::dv, 2, false}, Damage{Result::dv, -0.9, false},
               Damage{Result::dv, 1.001, true}, Damage{Result::o, 0.95, false}, Damage{Result::o, 1.001, true});
  Case made(causal_mask());
  made.problem.mask.left = 0;
  for (std::vector<float>* const all : {&made.q, &made.k}) std::fill(all->begin(), all->end(), 4096.f);
  for (std::vector<float>* const all : {&made.v, &made.d_o}) std::fill(all->begin(), all->end(), 1.f);
  made.expect();
  for (const Result each : row_results) CHECK(made.worst(each).excess <= 0.5);
  for (std::int64_t token = whole_head ? 0 : 5; token < (whole_head ? 384 : 6); ++token) {
    for (int x = 0; x < made.dim(result); ++x) made.row(result, token, 1)[x] *= by;
  }
  CAPTURE(name_of(result), by, whole_head);
  CHECK(made.worst(result).excess > 1);
}

TEST_CASE("zeros do not pass for a tie, however large its scores", "[judge]") {
  Case made(causal_mask());
  for (std::vector<float>* const all : {&made.q, &made.k}) std::fill(all->begin(), all->end(), 4096.f);
  for (std::vector<float>* const all : {&made.v, &made.d_o}) std::fill(all->begin(), all->end(), 1.f);
  made.expect();
  for (const Result each : row_results) CHECK(made.worst(each).excess <= 0.5);
  for (const Result result : {Result::o, Result::dv}) {
    for (std::int64_t token = 0; token < 384; ++token) std::fill_n(made.row(result, token, 1), 8, 0.0);
    CAPTURE(name_of(result));
    CHECK(made.worst(result).excess > 1);
  }
}

TEST_CASE("either of two keys may win where scores round by more than they differ", "[judge]") {
  Case made(causal_mask());
  multiply(made.q, 0, made.q.size(), 1e9f);
  std::copy_n(made.k.begin() + 2 * 2 * 16, 2 * 16, made.k.begin() + 3 * 2 * 16);  // token 3's are token 2's, nearly
  for (int x = 0; x < 2 * 16; ++x) made.k[static_cast<std::size_t>(3 * 2 * 16 + x)] *= 1.0000001f;
  made.expect();
  int changed = 0;
  for (std::int64_t token = 3; token < 384; ++token) {
    const std::vector<double> won(made.row(Result::o, token, 0), made.row(Result::o, token, 0) + 8);
    const float* const values = made.v.data();
    for (const int key : {2, 3}) {
      if (std::abs(won[0] - values[key * 2 * 8]) > 1e-6) continue;
      std::copy_n(values + (5 - key) * 2 * 8, 8, made.row(Result::o, token, 0));
      ++changed;
      break;
    }
  }
  CHECK(changed > 0);
  CHECK(made.worst(Result::o).excess <= 1);
  std::copy_n(made.v.data() + 9 * 2 * 8, 8, made.row(Result::o, 3, 0));  // of a token that this one does not see
  CHECK(made.worst(Result::o).excess > 1);
}

TEST_CASE("a row that is a twentieth off and a head that is a hundredth off are found at any size of scores",
          "[judge][again]") {
  const float size = GENERATE(1.f, 10.f, 100.f, 1000.f);
  Case made(causal_mask());
  multiply(made.q, 0, made.q.size(), size);
  multiply(made.k, 0, made.k.size(), size);
  made.expect();
  const ExactResult right = made.got;
  CAPTURE(size);
  for (const Result result : {Result::o, Result::dv}) {
    CAPTURE(name_of(result));
    CHECK(made.worst(result).excess <= 0.5);
    int missed = 0;
    for (std::int64_t token = 0; token < 384; token += 7) {
      double* const row = made.row(result, token, 1);
      if (std::all_of(row, row + 8, [](double x) { return std::abs(x) < 1e-3; })) continue;  // weights of no size
      for (int x = 0; x < 8; ++x) row[x] *= 1.05;
      missed += made.worst(result).excess <= 1 ? 1 : 0;
      made.got = right;
    }
    CHECK(missed <= 2);  // rows of which two scores of 10⁶ are nearly the same
    for (std::int64_t token = 0; token < 384; ++token) {
      for (int x = 0; x < 8; ++x) made.row(result, token, 1)[x] *= 1.01;
    }
    CHECK(made.worst(result).excess > 1);
    made.got = right;
  }
  std::copy_n(made.row(Result::o, 39, 0), 8, made.row(Result::o, 40, 0));
  CHECK(made.worst(Result::o).excess > 1);
}

TEST_CASE("what a wire holds badly is no fault of a result, and what it holds well is", "[judge]") {
  const auto [wire, size] = GENERATE(std::pair{DType::bf16, 1e-39f}, std::pair{DType::fp16, 1e-6f});
  Case made(causal_mask());
  multiply(made.v, 0, made.v.size(), size);
  multiply(made.d_o, 0, made.d_o.size(), size);
  made.problem.wire = wire;
  made.expect();
  const double step = wire == DType::bf16 ? 0x1p-133 : 0x1p-24;
  for (const Result result : {Result::o, Result::dv}) {
    for (double& value : made.of(result)) value = std::round(value / step) * step;
    CAPTURE(name_of(wire), name_of(result));
    CHECK(made.worst(result).excess <= 1);
    for (double& value : made.of(result)) value += 20 * step;
    CHECK(made.worst(result).excess > 1);
  }
}

/// What judges results: rounded exact ones are right, and small faults are found where they are.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "catch.hpp"
#include "tests/equivalence/judge_case.hpp"

using namespace distattn;
using test::documents;
using test::multiply;
using Case = test::JudgedCase;

namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("exact results rounded to fp32 are right, however large or small", "[judge]") {
  const float of_q = GENERATE(1e-20f, 1.f, 8.f, 100.f), of_v = GENERATE(1e-39f, 1e-30f, 1.f, 1e30f);
  Case made(documents({0, 5, 6, 200, 384}));
  multiply(made.q, 0, made.q.size(), of_q);
  multiply(made.v, 0, made.v.size(), of_v);
  made.expect();
  const Judge judge = made.judge();
  for (const Result result : row_results) {
    CAPTURE(name_of(result), of_q, of_v);
    CHECK(judge.comparison(result).worst.excess <= 0.5);
    CHECK(judge.comparison(result).wrong == 0);
  }
}

TEST_CASE("what is allowed stays far below what matters", "[judge]") {
  Case made(causal_mask());
  made.expect();
  const Judge judge = made.judge();
  for (const Result result : row_results) CHECK(judge.comparison(result).tolerance(result) < 5e-5);
}

TEST_CASE("one document that is a thousandth off is found among good ones", "[judge]") {
  const float of_the_rest = GENERATE(1.f, 1e20f);
  Case made(documents({0, 128, 144, 384}));
  multiply(made.v, 0, 128 * 2 * 8, of_the_rest);
  multiply(made.d_o, 0, 128 * 4 * 8, of_the_rest);
  made.expect();
  for (const Result result : {Result::o, Result::dq, Result::dk, Result::dv}) {
    for (std::int64_t token = 128; token < 144; ++token) {
      double* const row = made.row(result, token, 1);
      for (int x = 0; x < made.dim(result); ++x) row[x] *= 1.001;
    }
    const WorstPart worst = made.worst(result);
    CAPTURE(name_of(result));
    CHECK(worst.excess > 1);
    CHECK(worst.group == 1);
    CHECK(worst.head == 1);
  }
}

TEST_CASE("a row, a head and a document of denormals that become zeros are found", "[judge]") {
  Case made(documents({0, 100, 384}));
  multiply(made.v, 0, 100 * 2 * 8, 1e-40f);
  made.expect();
  for (std::int64_t token = 0; token < 100; ++token) {
    for (int head = 0; head < 4; ++head) std::fill_n(made.row(Result::o, token, head), 8, 0.0);
  }
  const WorstPart worst = made.worst(Result::o);
  CHECK(worst.excess > 1);
  CHECK(worst.group == 0);
  CHECK(worst.error == Approx(1).margin(0.01));
  CHECK(made.judge().comparison(Result::o).error(Result::o) < 1e-7);  // which is where it would hide
}

TEST_CASE("keys that one head does not see are missed", "[judge]") {
  Case made(causal_mask());
  made.expect();
  Problem other = made.problem;
  other.mask = band_mask({{0, 384, 0, 64, 0, unbounded}, {0, 384, 128, 384, 0, unbounded}});
  ExactResult without = made.exact_with(other);
  std::swap(made.got, without);
  for (const Result result : row_results) {  // but for head 2, and its key head, everything is as it was
    for (std::int64_t token = 0; token < 384; ++token) {
      for (int head = 0; head < made.heads(result); ++head) {
        if (head == (is_key_side(result) ? 1 : 2)) continue;
        std::swap(made.got, without);
        const std::vector<double> right(made.row(result, token, head),
                                        made.row(result, token, head) + made.dim(result));
        std::swap(made.got, without);
        std::copy(right.begin(), right.end(), made.row(result, token, head));
      }
    }
    CAPTURE(name_of(result));
    CHECK(made.worst(result).excess > 1);
    CHECK(made.worst(result).head == (is_key_side(result) ? 1 : 2));
  }
}

TEST_CASE("rows that changed places are found", "[judge]") {
  const Result result = GENERATE(Result::o, Result::dq, Result::dk, Result::dv);
  Case made(causal_mask());
  made.expect();
  std::swap_ranges(made.row(result, 40, 1), made.row(result, 40, 1) + made.dim(result), made.row(result, 300, 1));
  const WorstPart worst = made.worst(result);
  CHECK(worst.excess > 1);
  CHECK((worst.token == 40 || worst.token == 300));
  CHECK(worst.head == 1);
}

TEST_CASE("partial results merged with wrong weights are found", "[judge]") {
  Case made(full_mask());
  made.expect();
  Problem low = made.problem, high = made.problem;
  low.mask = band_mask({{0, 384, 0, 192, -unbounded, unbounded}});
  high.mask = band_mask({{0, 384, 192, 384, -unbounded, unbounded}});
  const ExactResult a = made.exact_with(low), b = made.exact_with(high);
  for (std::size_t i = 0; i < a.o.size(); ++i) made.got.o[i] = (a.o[i] + b.o[i]) / 2;
  CHECK(made.worst(Result::o).excess > 1);
}

TEST_CASE("NaN and infinity are right where they are expected, and nowhere else", "[judge]") {
  Case made(documents({0, 128, 384}));
  made.v[5] = std::numeric_limits<float>::infinity();  // element 5 of token 0, key head 0
  made.q[static_cast<std::size_t>((200 * 4 + 1) * 16)] = static_cast<float>(no_number);
  made.expect();
  const Judge judge = made.judge();
  for (const Result result : row_results) {
    CAPTURE(name_of(result));
    CHECK(judge.comparison(result).worst.excess <= 1);
  }

  const std::vector<double> o = made.got.o;
  made.row(Result::o, 10, 0)[5] = 1;  // where an infinity is expected
  CHECK(std::isinf(made.worst(Result::o).excess));
  made.got.o = o;
  made.row(Result::o, 10, 0)[5] = -std::numeric_limits<double>::infinity();
  CHECK(std::isinf(made.worst(Result::o).excess));
  made.got.o = o;
  made.row(Result::o, 10, 0)[4] += 1e-3;  // beside it
  CHECK(made.worst(Result::o).excess > 1);
  made.got.o = o;
  made.row(Result::o, 150, 3)[0] = no_number;
  CHECK(std::isinf(made.worst(Result::o).excess));
  CHECK(made.worst(Result::o).head == 3);
  made.got.o = o;
  made.row(Result::o, 200, 1)[2] = 0;  // where a NaN is expected
  CHECK(std::isinf(made.worst(Result::o).excess));
}

TEST_CASE("numbers of fp64 are judged whose squares it does not hold", "[judge]") {
  const double of_v = GENERATE(1e-280, 1e-200, 1e160, 1e280), of_d_o = GENERATE(1e-20, 1e20);
  Case made(documents({0, 100, 384}));
  made.problem.dtype = DType::fp64;
  const auto doubles = [](const std::vector<float>& values, double factor) {
    std::vector<double> all(values.begin(), values.end());
    for (double& value : all) value *= factor;
    return all;
  };
  const auto q = doubles(made.q, 1), k = doubles(made.k, 1), v = doubles(made.v, of_v), d_o = doubles(made.d_o, of_d_o);
  const auto view = [](const std::vector<double>& values, int heads, int dim) {
    return dense_view(reinterpret_cast<const std::byte*>(values.data()), DType::fp64, 1, 384, heads, dim);
  };
  made.groups = groups_of(made.problem);
  made.expected = expected_attention(made.problem, rounding_of(made.problem, made.merges, true), view(q, 4, 16),
                                     view(k, 2, 16), view(v, 2, 8), view(d_o, 4, 8), 2);
  made.got = made.expected.exact;
  const auto worst = [&](Result result) {
    Judge judge(made.problem, made.groups, made.expected);
    for (std::int64_t token = 0; token < 384; ++token) {
      for (int head = 0; head < made.heads(result); ++head) {
        judge.add(result, 0, token, head, reinterpret_cast<const std::byte*>(made.row(result, token, head)),
                  DType::fp64);
      }
    }
    const Comparison comparison = judge.comparison(result);
    CHECK(comparison.tolerance(result) > 0);
    CHECK(comparison.tolerance(result) < 1e-12);
    return comparison.worst.excess;
  };
  for (const Result result : {Result::o, Result::dq, Result::dk, Result::dv}) {
    CAPTURE(name_of(result), of_v, of_d_o);
    double* const row = made.row(result, 150, 1);
    row[2] *= 1 + 1e-15;
    CHECK(worst(result) <= 1);
    row[2] *= 1.001;
    CHECK(worst(result) > 1);
  }
}

TEST_CASE("zeros have to be zeros", "[judge]") {
  Case made(band_mask({{0, 300, 0, 300, 0, unbounded}}));
  std::fill(made.v.begin(), made.v.end(), 0.f);
  made.expect();
  CHECK(made.worst(Result::o).excess <= 1);
  made.row(Result::o, 20, 0)[0] = 1e-30;
  CHECK(made.worst(Result::o).excess > 1);
  made.expect();
  made.row(Result::lse, 350, 2)[0] = 0;  // of a query that sees nothing
  CHECK(std::isinf(made.worst(Result::lse).excess));
  CHECK(made.worst(Result::lse).group == -1);
  made.expect();
  made.row(Result::dv, 320, 1)[3] = 1e-30;  // of a key that nothing sees
  CHECK(made.worst(Result::dv).excess > 1e6);
}

TEST_CASE("gradients that cancel are judged beside what cancels", "[judge]") {
  Case made(causal_mask());
  made.problem.mask.left = 0;  // each query sees itself: dS = 0
  made.expect();
  for (double& value : made.got.dq) value = 1e-7;
  CHECK(made.worst(Result::dq).excess <= 1);
  for (double& value : made.got.dq) value = 1e-4;
  CHECK(made.worst(Result::dq).excess > 1);
}

TEST_CASE("processes that have some rows each judge as one that has all", "[judge]") {
  Case made(documents({0, 100, 384}));
  made.expect();
  made.row(Result::dk, 50, 1)[3] += 0.5;
  const Judge whole = made.judge();
  Judge together(made.problem, made.groups, made.expected);
  for (const int owner : {0, 1}) {
    Judge own(made.problem, made.groups, made.expected);
    for (const Result result : row_results) {
      for (std::int64_t token = owner; token < 384; token += 2) {
        for (int head = 0; head < made.heads(result); ++head) {
          std::vector<float> values(made.row(result, token, head), made.row(result, token, head) + made.dim(result));
          own.add(result, 0, token, head, reinterpret_cast<const std::byte*>(values.data()), DType::fp32);
        }
      }
    }
    together.add(own.parts());
  }
  for (const Result result : row_results) {
    const Comparison a = whole.comparison(result), b = together.comparison(result);
    CHECK(a.error(result) == Approx(b.error(result)));
    CHECK(a.worst.excess == Approx(b.worst.excess));
    CHECK(a.worst.token == b.worst.token);
    CHECK(a.wrong == b.wrong);
  }
  CHECK(whole.comparison(Result::dk).worst.token == 50);
}

TEST_CASE("thousands of documents of one token are judged within moments", "[judge]") {
  std::vector<std::int64_t> ends;
  constexpr std::int64_t tokens = 50'000;  // squares of this many take minutes
  for (std::int64_t d = 0; d <= tokens; ++d) ends.push_back(d);
  Case made(documents(ends), tokens, 1, 1);
  made.expect();
  made.row(Result::o, 777, 0)[0] *= 1.001;
  const WorstPart worst = made.worst(Result::o);
  CHECK(worst.excess > 1);
  CHECK(worst.group == 777);
}

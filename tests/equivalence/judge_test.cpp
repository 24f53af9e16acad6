/// What judges results: rounded exact ones are right, and small faults are found where they are.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "catch.hpp"
#include "distattn/judge.hpp"

using namespace distattn;

namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// An attention with inputs that a test may change, and what a perfect device would return for it.
struct Case {
  explicit Case(Mask mask, std::int64_t tokens = 384, int heads = 4, int kv_heads = 2) {
    problem = {.seq_q = tokens,
               .seq_kv = tokens,
               .heads = heads,
               .kv_heads = kv_heads,
               .head_dim = 16,
               .value_dim = 8,
               .mask = std::move(mask)};
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, int count, int dim) {
      values.resize(static_cast<std::size_t>(tokens * count * dim));
      for (float& value : values) value = normal(random);
    };
    fill(q, heads, problem.head_dim);
    fill(k, kv_heads, problem.head_dim);
    fill(v, kv_heads, problem.value_dim);
    fill(d_o, heads, problem.value_dim);
  }

  ConstTensorView view(const std::vector<float>& values, int count, int dim) const {
    return dense_view(values.data(), 1, problem.seq_q, count, dim);
  }
  ExactResult exact_with(const Problem& other) const {
    return exact_attention(other, view(q, other.heads, 16), view(k, other.kv_heads, 16), view(v, other.kv_heads, 8),
                           view(d_o, other.heads, 8), 2);
  }
  void expect() {
    groups = groups_of(problem);
    expected =
        expected_attention(problem, rounding_of(problem, merges), view(q, problem.heads, 16),
                           view(k, problem.kv_heads, 16), view(v, problem.kv_heads, 8), view(d_o, problem.heads, 8), 2);
    got = expected.exact;
  }
  std::vector<double>& of(Result result) {
    const std::array all = {&got.o, &got.lse, &got.dq, &got.dk, &got.dv};
    return *all[static_cast<std::size_t>(result)];
  }
  int dim(Result result) const {
    return result == Result::lse                         ? 1
           : result == Result::o || result == Result::dv ? problem.value_dim
                                                         : problem.head_dim;
  }
  int heads(Result result) const { return is_key_side(result) ? problem.kv_heads : problem.heads; }
  double* row(Result result, std::int64_t token, int head) {
    const std::int64_t at = result == Result::lse ? head * problem.seq_q + token : token * heads(result) + head;
    return of(result).data() + at * dim(result);
  }
  /// Of `got`, rounded to fp32.
  Judge judge() {
    Judge made(problem, groups, expected);
    for (const Result result : all_results) {
      for (std::int64_t token = 0; token < problem.seq_q; ++token) {
        for (int head = 0; head < heads(result); ++head) {
          std::vector<float> values(row(result, token, head), row(result, token, head) + dim(result));
          made.add(result, 0, token, head, reinterpret_cast<const std::byte*>(values.data()), DType::fp32);
        }
      }
    }
    return made;
  }
  WorstPart worst(Result result) { return judge().comparison(result).worst; }

  Problem problem;
  std::int64_t merges = 4;
  std::vector<float> q, k, v, d_o;
  MaskGroups groups;
  ExpectedResult expected;
  ExactResult got;
};

Mask documents(std::vector<std::int64_t> ends) {
  Mask mask = causal_mask();
  mask.documents = std::move(ends);
  return mask;
}

void multiply(std::vector<float>& values, std::size_t begin, std::size_t end, float by) {
  for (std::size_t i = begin; i < end; ++i) values[i] *= by;
}

}  // namespace

TEST_CASE("exact results rounded to fp32 are right, however large or small", "[judge]") {
  const float of_q = GENERATE(1e-20f, 1.f, 8.f, 100.f), of_v = GENERATE(1e-39f, 1e-30f, 1.f, 1e30f);
  Case made(documents({0, 5, 6, 200, 384}));
  multiply(made.q, 0, made.q.size(), of_q);
  multiply(made.v, 0, made.v.size(), of_v);
  made.expect();
  const Judge judge = made.judge();
  for (const Result result : all_results) {
    CAPTURE(name_of(result), of_q, of_v);
    CHECK(judge.comparison(result).worst.excess <= 0.5);
    CHECK(judge.comparison(result).wrong == 0);
  }
}

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
  for (const Result each : all_results) CHECK(made.worst(each).excess <= 0.5);
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
  for (const Result each : all_results) CHECK(made.worst(each).excess <= 0.5);
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
          "[judge]") {
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

TEST_CASE("what is allowed stays far below what matters", "[judge]") {
  Case made(causal_mask());
  made.expect();
  const Judge judge = made.judge();
  for (const Result result : all_results) CHECK(judge.comparison(result).tolerance(result) < 5e-5);
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
  for (const Result result : all_results) {  // but for head 2, and its key head, everything is as it was
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
  for (const Result result : all_results) {
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
    for (const Result result : all_results) {
      for (std::int64_t token = owner; token < 384; token += 2) {
        for (int head = 0; head < made.heads(result); ++head) {
          std::vector<float> values(made.row(result, token, head), made.row(result, token, head) + made.dim(result));
          own.add(result, 0, token, head, reinterpret_cast<const std::byte*>(values.data()), DType::fp32);
        }
      }
    }
    together.add(own.parts());
  }
  for (const Result result : all_results) {
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

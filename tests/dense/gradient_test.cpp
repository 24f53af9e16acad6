#include "catch.hpp"
#include "kernels/dense/cross_entropy.hpp"
#include "kernels/dense/embedding.hpp"
#include "kernels/dense/rmsnorm.hpp"
#include "kernels/dense/rope.hpp"
#include "kernels/dense/swiglu.hpp"
#include "tests/dense/finite_difference.hpp"

using namespace distattn;
using namespace distattn::kernels::dense;
using test::dot;
using test::gradient_error;
using test::random_values;

// Central differences with step 1e-5 in float64 are good to about 1e-9.
constexpr double difference_tolerance = 1e-7;

TEST_CASE("rmsnorm: unit root mean square times the gain, and its gradients", "[dense]") {
  const std::int64_t rows = 3, width = 10;
  auto x = random_values(30, 1), gain = random_values(10, 2), weights = random_values(30, 3);
  std::vector<double> n(30);
  const Matrix<double> mx{x.data(), rows, width}, mn{n.data(), rows, width};
  const auto forward = [&] {
    rmsnorm(mx, gain.data(), mn);
    return dot(n, weights);
  };
  forward();
  double squares = 0;
  for (int j = 0; j < width; ++j) squares += (n[j] / gain[j]) * (n[j] / gain[j]);
  REQUIRE(squares / width == Approx(1.0).epsilon(1e-4));

  std::vector<double> dx(30, 0.0), dgain(10, 0.0);
  rmsnorm_backward({x.data(), rows, width}, gain.data(), {weights.data(), rows, width},
                   Matrix<double>{dx.data(), rows, width}, dgain.data());
  REQUIRE(gradient_error(x, dx, forward) < difference_tolerance);
  REQUIRE(gradient_error(gain, dgain, forward) < difference_tolerance);
}

TEST_CASE("rmsnorm_backward adds to what dx holds: the residual stream", "[dense]") {
  std::vector<double> x{1, 2}, gain{1, 1}, dn{0, 0}, dx{5, 6}, dgain{7, 8};
  rmsnorm_backward({x.data(), 1, 2}, gain.data(), {dn.data(), 1, 2}, Matrix<double>{dx.data(), 1, 2}, dgain.data());
  REQUIRE(dx == std::vector<double>{5, 6});
  REQUIRE(dgain == std::vector<double>{7, 8});
}

TEST_CASE("swiglu and its gradients, also in place", "[dense]") {
  auto gate = random_values(24, 4, 2.0), up = random_values(24, 5), weights = random_values(24, 6);
  std::vector<double> s(24), dgate(24), dup(24);
  const auto m = [](std::vector<double>& v) { return Matrix<double>{v.data(), 4, 6}; };
  const auto forward = [&] {
    swiglu(m(gate), m(up), m(s));
    return dot(s, weights);
  };
  forward();
  REQUIRE(s[0] == Approx(gate[0] / (1 + std::exp(-gate[0])) * up[0]));
  swiglu_backward(m(gate), m(up), m(weights), m(dgate), m(dup));
  REQUIRE(gradient_error(gate, dgate, forward) < difference_tolerance);
  REQUIRE(gradient_error(up, dup, forward) < difference_tolerance);

  swiglu_backward(m(gate), m(up), m(weights), m(gate), m(up));
  REQUIRE(gate == dgate);
  REQUIRE(up == dup);
}

TEST_CASE("rope: halves turn by position and frequency, and back", "[dense]") {
  const std::vector<std::int64_t> positions{0, 1, 1000};
  const int heads = 2, dim = 8;
  const RotaryTable<double> table(positions, dim);
  const auto original = random_values(3 * heads * dim, 7);
  auto x = original;
  table.rotate(x.data(), heads);
  for (int i = 0; i < heads * dim; ++i) REQUIRE(x[i] == original[i]);

  const double angle = 1000 * std::pow(10000.0, -2.0 * 3 / dim);
  const std::size_t low = (2 * heads + 1) * dim + 3, high = low + dim / 2;
  REQUIRE(x[low] == Approx(original[low] * std::cos(angle) - original[high] * std::sin(angle)));
  REQUIRE(x[high] == Approx(original[low] * std::sin(angle) + original[high] * std::cos(angle)));

  table.rotate_back(x.data(), heads);
  for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(x[i] == Approx(original[i]).margin(1e-12));
}

TEST_CASE("rope: the product of a query and a key depends on their distance only", "[dense]") {
  const RotaryTable<double> table(std::vector<std::int64_t>{3, 10, 103, 110}, 16);
  const auto a = random_values(16, 8), b = random_values(16, 9);
  std::vector<double> q, k;
  for (int copies = 0; copies < 4; ++copies) {
    q.insert(q.end(), a.begin(), a.end());
    k.insert(k.end(), b.begin(), b.end());
  }
  table.rotate(q.data(), 1);
  table.rotate(k.data(), 1);
  const auto product = [&](int i, int j) {
    double sum = 0;
    for (int x = 0; x < 16; ++x) sum += q[i * 16 + x] * k[j * 16 + x];
    return sum;
  };
  REQUIRE(product(1, 0) == Approx(product(3, 2)));
  REQUIRE(product(1, 0) != Approx(product(2, 0)));
}

TEST_CASE("embedding: gather, and scatter as its gradient", "[dense]") {
  auto table = random_values(5 * 3, 10), weights = random_values(4 * 3, 11);
  const std::vector<std::int32_t> tokens{4, 0, 4, 2};
  std::vector<double> x(12), dtable(15, 0.0);
  const auto forward = [&] {
    gather_rows({table.data(), 5, 3}, tokens, Matrix<double>{x.data(), 4, 3});
    return dot(x, weights);
  };
  forward();
  REQUIRE(x[0] == table[12]);
  scatter_add_rows({weights.data(), 4, 3}, tokens, Matrix<double>{dtable.data(), 5, 3});
  REQUIRE(gradient_error(table, dtable, forward) < difference_tolerance);
}

TEST_CASE("cross-entropy: loss, gradient in place, and a token without a successor", "[dense]") {
  auto logits = random_values(3 * 6, 12, 3.0);
  const std::vector<std::int32_t> targets{2, no_target, 5};
  const double weight = 0.25;
  auto scratch = logits;
  const auto forward = [&] {
    scratch = logits;
    return weight * cross_entropy(Matrix<double>{scratch.data(), 3, 6}, targets, weight);
  };
  double first = 0;
  for (int j = 0; j < 6; ++j) first += std::exp(logits[j]);
  std::vector<double> alone(logits.begin(), logits.begin() + 6);
  REQUIRE(cross_entropy(Matrix<double>{alone.data(), 1, 6}, std::vector<std::int32_t>{2}, 1.0) ==
          Approx(std::log(first) - logits[2]));

  forward();
  const auto gradient = scratch;
  REQUIRE(gradient_error(logits, gradient, forward) < difference_tolerance);
  for (int j = 6; j < 12; ++j) REQUIRE(gradient[j] == 0);
}

TEST_CASE("cross-entropy stays finite for logits far apart", "[dense]") {
  std::vector<float> logits{1000.0f, -1000.0f};
  REQUIRE(cross_entropy(Matrix<float>{logits.data(), 1, 2}, std::vector<std::int32_t>{1}, 1.0) == Approx(2000.0));
  REQUIRE(logits == std::vector<float>{1.0f, -1.0f});
}

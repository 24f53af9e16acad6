#include "kernels/dense/matmul.hpp"

#include "catch.hpp"
#include "tests/dense/finite_difference.hpp"

using namespace distattn;
using namespace distattn::kernels::dense;

namespace {

// c[i][j] = start + Σ_k a(i,k) b(k,j), by the definition.
template <class T, class A, class B>
std::vector<T> by_definition(std::int64_t m, std::int64_t n, std::int64_t inner, T start, A a, B b) {
  std::vector<T> c;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = start;
      for (std::int64_t k = 0; k < inner; ++k) sum += static_cast<double>(a(i, k)) * static_cast<double>(b(k, j));
      c.push_back(static_cast<T>(sum));
    }
  }
  return c;
}

template <class T>
void require_close(const std::vector<T>& computed, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    REQUIRE(computed[i] == Approx(expected[i]).epsilon(1e-4).margin(1e-4));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("the three products of a linear layer", "[dense]", float, double) {
  const std::int64_t tokens = 7, in = 5, out = 11;
  const auto draw = [](std::size_t count, std::uint64_t seed) {
    const auto values = test::random_values(count, seed);
    return std::vector<TestType>(values.begin(), values.end());
  };
  auto x = draw(tokens * in, 1), w = draw(in * out, 2), dy = draw(tokens * out, 3);
  const Matrix<TestType> mx{x.data(), tokens, in}, mw{w.data(), in, out}, mdy{dy.data(), tokens, out};
  const auto at = [](Matrix<TestType> m) { return [m](std::int64_t i, std::int64_t j) { return m.row(i)[j]; }; };
  const auto transposed = [](Matrix<TestType> m) {
    return [m](std::int64_t i, std::int64_t j) { return m.row(j)[i]; };
  };

  std::vector<TestType> y(tokens * out, TestType(9));
  multiply(mx, mw, Matrix<TestType>{y.data(), tokens, out});
  require_close(y, by_definition(tokens, out, in, TestType(0), at(mx), at(mw)));

  std::vector<TestType> dx(tokens * in, TestType(2));
  multiply_transposed(mdy, mw, Matrix<TestType>{dx.data(), tokens, in}, Into::add);
  require_close(dx, by_definition(tokens, in, out, TestType(2), at(mdy), transposed(mw)));

  std::vector<TestType> dw(in * out, TestType(-1));
  add_weight_gradient(mx, mdy, Matrix<TestType>{dw.data(), in, out});
  require_close(dw, by_definition(in, out, tokens, TestType(-1), transposed(mx), at(mdy)));
}

TEST_CASE("a rank without tokens multiplies nothing and leaves weight gradients alone", "[dense]") {
  std::vector<float> w(6, 1.0f), dw(6, 3.0f);
  const Matrix<float> mw{w.data(), 2, 3}, none_in{nullptr, 0, 2}, none_out{nullptr, 0, 3};
  multiply(none_in, mw, none_out);
  multiply_transposed(none_out, mw, none_in);
  add_weight_gradient(none_in, none_out, Matrix<float>{dw.data(), 2, 3});
  REQUIRE(dw == std::vector<float>(6, 3.0f));
}

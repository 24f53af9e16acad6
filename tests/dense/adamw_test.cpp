#include "kernels/dense/adamw.hpp"

#include <cmath>
#include <vector>

#include "catch.hpp"

using namespace distattn::kernels::dense;

TEST_CASE("the first AdamW update is one learning rate against the gradient's sign", "[dense]") {
  std::vector<double> parameters{1.0, -2.0, 0.5}, gradients{0.3, -40.0, 0.0}, first(3, 0.0), second(3, 0.0);
  adamw<double>({}, 1, parameters, gradients, first, second);
  REQUIRE(parameters[0] == Approx(1.0 - 3e-3).epsilon(1e-9));
  REQUIRE(parameters[1] == Approx(-2.0 + 3e-3).epsilon(1e-9));
  REQUIRE(parameters[2] == 0.5);
}

TEST_CASE("moments decay and are unbiased; weight decay is decoupled", "[dense]") {
  AdamWOptions options;
  options.weight_decay = 0.1;
  std::vector<double> parameters{2.0}, first{0.0}, second{0.0};
  double p = 2.0, m = 0, v = 0;
  for (int step = 1; step <= 5; ++step) {
    const double g = std::sin(step);
    const std::vector<double> gradients{g};
    adamw<double>(options, step, parameters, gradients, first, second);
    m = 0.9 * m + 0.1 * g;
    v = 0.95 * v + 0.05 * g * g;
    const double unbiased_m = m / (1 - std::pow(0.9, step)), unbiased_v = v / (1 - std::pow(0.95, step));
    p = p - 3e-3 * 0.1 * p - 3e-3 * unbiased_m / (std::sqrt(unbiased_v) + 1e-8);
    REQUIRE(parameters[0] == Approx(p).epsilon(1e-12));
  }
}

#pragma once
/// Central differences of a scalar function: what every analytic gradient in float64 is checked against.

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace distattn::test {

inline std::vector<double> random_values(std::size_t count, std::uint64_t seed, double spread = 1.0) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0.0, spread);
  std::vector<double> values(count);
  for (double& value : values) value = normal(engine);
  return values;
}

/// ‖gradient − central difference of `f` at x‖ / ‖gradient‖. Leaves x as it was.
inline double gradient_error(std::vector<double>& x, const std::vector<double>& gradient,
                             const std::function<double()>& f, double step = 1e-5) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + step;
    const double above = f();
    x[i] = at - step;
    const double below = f();
    x[i] = at;
    const double slope = (above - below) / (2 * step);
    difference += (slope - gradient[i]) * (slope - gradient[i]);
    norm += gradient[i] * gradient[i];
  }
  return std::sqrt(difference / norm);
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace distattn::test

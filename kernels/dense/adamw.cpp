#include "kernels/dense/adamw.hpp"

#include <cmath>
#include <cstddef>

namespace distattn::kernels::dense {

template <class T>
void adamw(const AdamWOptions& options, int step, std::span<T> parameters, std::span<const T> gradients,
           std::span<T> first, std::span<T> second) {
  const T beta1 = static_cast<T>(options.beta1), beta2 = static_cast<T>(options.beta2);
  const T epsilon = static_cast<T>(options.epsilon);
  const T decay = static_cast<T>(1 - options.learning_rate * options.weight_decay);
  const T rate = static_cast<T>(options.learning_rate / (1 - std::pow(options.beta1, step)));
  const T unbias_second = static_cast<T>(1 / (1 - std::pow(options.beta2, step)));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const T g = gradients[i];
    first[i] = beta1 * first[i] + (T(1) - beta1) * g;
    second[i] = beta2 * second[i] + (T(1) - beta2) * g * g;
    parameters[i] = decay * parameters[i] - rate * first[i] / (std::sqrt(second[i] * unbias_second) + epsilon);
  }
}

template void adamw(const AdamWOptions&, int, std::span<float>, std::span<const float>, std::span<float>,
                    std::span<float>);
template void adamw(const AdamWOptions&, int, std::span<double>, std::span<const double>, std::span<double>,
                    std::span<double>);

}  // namespace distattn::kernels::dense

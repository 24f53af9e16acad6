#include "kernels/dense/cross_entropy.hpp"

#include <algorithm>
#include <cmath>

#include "distattn/index.hpp"

namespace distattn::kernels::dense {

template <class T>
double cross_entropy(Matrix<T> logits, std::span<const std::int32_t> targets, double weight) {
  double loss = 0;
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    T* row = logits.row(i);
    const std::int32_t target = targets[index(i)];
    if (target == no_target) {
      std::fill_n(row, logits.cols, T(0));
      continue;
    }
    const T largest = *std::max_element(row, row + logits.cols);
    const T of_target = row[target] - largest;
    T sum = 0;
    for (std::int64_t j = 0; j < logits.cols; ++j) sum += row[j] = std::exp(row[j] - largest);
    loss += std::log(static_cast<double>(sum)) - static_cast<double>(of_target);
    const T scale = static_cast<T>(weight) / sum;
    for (std::int64_t j = 0; j < logits.cols; ++j) row[j] *= scale;
    row[target] -= static_cast<T>(weight);
  }
  return loss;
}

template double cross_entropy(Matrix<float>, std::span<const std::int32_t>, double);
template double cross_entropy(Matrix<double>, std::span<const std::int32_t>, double);

}  // namespace distattn::kernels::dense

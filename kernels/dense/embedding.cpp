#include "kernels/dense/embedding.hpp"

#include <algorithm>

namespace distattn::kernels::dense {

template <class T>
void gather_rows(ConstMatrix<T> table, std::span<const std::int32_t> tokens, Matrix<T> x) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::copy_n(table.row(tokens[i]), table.cols, x.row(static_cast<std::int64_t>(i)));
  }
}

template <class T>
void scatter_add_rows(ConstMatrix<T> dx, std::span<const std::int32_t> tokens, Matrix<T> dtable) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const T* from = dx.row(static_cast<std::int64_t>(i));
    T* into = dtable.row(tokens[i]);
    for (std::int64_t j = 0; j < dx.cols; ++j) into[j] += from[j];
  }
}

template void gather_rows(ConstMatrix<float>, std::span<const std::int32_t>, Matrix<float>);
template void gather_rows(ConstMatrix<double>, std::span<const std::int32_t>, Matrix<double>);
template void scatter_add_rows(ConstMatrix<float>, std::span<const std::int32_t>, Matrix<float>);
template void scatter_add_rows(ConstMatrix<double>, std::span<const std::int32_t>, Matrix<double>);

}  // namespace distattn::kernels::dense

#pragma once
/// RMSNorm with gain: n = x / √(mean(x²) + ε) ∘ g, by rows.

#include "kernels/dense/matrix.hpp"

namespace distattn::kernels::dense {

inline constexpr double rmsnorm_epsilon = 1e-5;

/// n = rmsnorm(x) ∘ gain; gain has one value a column.
template <class T>
void rmsnorm(ConstMatrix<T> x, const T* gain, Matrix<T> n);

/// dx += the gradient through the norm, dgain += that of the gain. The row's scale is computed again from x.
template <class T>
void rmsnorm_backward(ConstMatrix<T> x, const T* gain, ConstMatrix<T> dn, Matrix<T> dx, T* dgain);

}  // namespace distattn::kernels::dense

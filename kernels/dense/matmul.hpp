#pragma once
/// Matrix products through BLAS, one thread a call: the three that a linear layer y = x·w needs.

#include "kernels/dense/matrix.hpp"

namespace distattn::kernels::dense {

/// y (+)= x·w, with x [n][in], w [in][out], y [n][out]. T is float or double, here and in every kernel of this folder.
template <class T>
void multiply(ConstMatrix<T> x, ConstMatrix<T> w, Matrix<T> y, Into into = Into::overwrite);

/// dx (+)= dy·wᵀ.
template <class T>
void multiply_transposed(ConstMatrix<T> dy, ConstMatrix<T> w, Matrix<T> dx, Into into = Into::overwrite);

/// dw += xᵀ·dy.
template <class T>
void add_weight_gradient(ConstMatrix<T> x, ConstMatrix<T> dy, Matrix<T> dw);

}  // namespace distattn::kernels::dense

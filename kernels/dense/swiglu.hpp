#pragma once
/// SwiGLU: s = silu(a) ∘ b, silu(a) = a / (1 + e^−a).

#include "kernels/dense/matrix.hpp"

namespace distattn::kernels::dense {

/// s = silu(gate) ∘ up.
template <class T>
void swiglu(ConstMatrix<T> gate, ConstMatrix<T> up, Matrix<T> s);

/// Gradients of both factors. dgate and dup may be gate and up themselves: they are read before they are written.
template <class T>
void swiglu_backward(ConstMatrix<T> gate, ConstMatrix<T> up, ConstMatrix<T> ds, Matrix<T> dgate, Matrix<T> dup);

}  // namespace distattn::kernels::dense

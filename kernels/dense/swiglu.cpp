#include "kernels/dense/swiglu.hpp"

#include <cmath>

namespace distattn::kernels::dense {
namespace {

template <class T>
T sigmoid(T a) {
  return T(1) / (T(1) + std::exp(-a));
}

}  // namespace

template <class T>
void swiglu(ConstMatrix<T> gate, ConstMatrix<T> up, Matrix<T> s) {
  for (std::int64_t i = 0; i < s.size(); ++i) s.data[i] = gate.data[i] * sigmoid(gate.data[i]) * up.data[i];
}

template <class T>
void swiglu_backward(ConstMatrix<T> gate, ConstMatrix<T> up, ConstMatrix<T> ds, Matrix<T> dgate, Matrix<T> dup) {
  for (std::int64_t i = 0; i < ds.size(); ++i) {
    const T a = gate.data[i], b = up.data[i], d = ds.data[i], share = sigmoid(a);
    dgate.data[i] = d * b * share * (T(1) + a * (T(1) - share));
    dup.data[i] = d * a * share;
  }
}

template void swiglu(ConstMatrix<float>, ConstMatrix<float>, Matrix<float>);
template void swiglu(ConstMatrix<double>, ConstMatrix<double>, Matrix<double>);
template void swiglu_backward(ConstMatrix<float>, ConstMatrix<float>, ConstMatrix<float>, Matrix<float>, Matrix<float>);
template void swiglu_backward(ConstMatrix<double>, ConstMatrix<double>, ConstMatrix<double>, Matrix<double>,
                              Matrix<double>);

}  // namespace distattn::kernels::dense

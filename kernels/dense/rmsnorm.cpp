#include "kernels/dense/rmsnorm.hpp"

#include <cmath>

namespace distattn::kernels::dense {
namespace {

template <class T>
T inverse_rms(const T* x, std::int64_t width) {
  T squares = 0;
  for (std::int64_t j = 0; j < width; ++j) squares += x[j] * x[j];
  return T(1) / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(rmsnorm_epsilon));
}

}  // namespace

template <class T>
void rmsnorm(ConstMatrix<T> x, const T* gain, Matrix<T> n) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const T* xi = x.row(i);
    T* ni = n.row(i);
    const T r = inverse_rms(xi, x.cols);
    for (std::int64_t j = 0; j < x.cols; ++j) ni[j] = xi[j] * r * gain[j];
  }
}

// With r = (mean(x²) + ε)^(-1/2):  dx = r (g∘dn) − x r³/width Σ (g∘dn∘x),  dg = Σ_rows dn∘x r.
template <class T>
void rmsnorm_backward(ConstMatrix<T> x, const T* gain, ConstMatrix<T> dn, Matrix<T> dx, T* dgain) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const T *xi = x.row(i), *dni = dn.row(i);
    T* dxi = dx.row(i);
    const T r = inverse_rms(xi, x.cols);
    T projection = 0;
    for (std::int64_t j = 0; j < x.cols; ++j) projection += gain[j] * dni[j] * xi[j];
    const T along_x = projection * r * r * r / static_cast<T>(x.cols);
    for (std::int64_t j = 0; j < x.cols; ++j) {
      dxi[j] += r * gain[j] * dni[j] - along_x * xi[j];
      dgain[j] += dni[j] * xi[j] * r;
    }
  }
}

template void rmsnorm(ConstMatrix<float>, const float*, Matrix<float>);
template void rmsnorm(ConstMatrix<double>, const double*, Matrix<double>);
template void rmsnorm_backward(ConstMatrix<float>, const float*, ConstMatrix<float>, Matrix<float>, float*);
template void rmsnorm_backward(ConstMatrix<double>, const double*, ConstMatrix<double>, Matrix<double>, double*);

}  // namespace distattn::kernels::dense

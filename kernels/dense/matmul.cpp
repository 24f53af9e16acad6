#include "kernels/dense/matmul.hpp"

#include "kernels/dense/blas.hpp"

namespace distattn::kernels::dense {
namespace {

struct Operand {
  CBLAS_TRANSPOSE transpose;
  std::int64_t leading;
};

template <class T>
void gemm(Operand as_a, const T* a, Operand as_b, const T* b, Matrix<T> c, std::int64_t inner, Into into) {
  if (c.rows == 0 || c.cols == 0) return;
  const T beta = into == Into::add ? T(1) : T(0);
  const auto m = static_cast<int>(c.rows), n = static_cast<int>(c.cols), k = static_cast<int>(inner);
  const auto lda = static_cast<int>(as_a.leading), ldb = static_cast<int>(as_b.leading);
  if constexpr (std::is_same_v<T, float>) {
    blas().sgemm(CblasRowMajor, as_a.transpose, as_b.transpose, m, n, k, T(1), a, lda, b, ldb, beta, c.data, n);
  } else {
    blas().dgemm(CblasRowMajor, as_a.transpose, as_b.transpose, m, n, k, T(1), a, lda, b, ldb, beta, c.data, n);
  }
}

}  // namespace

template <class T>
void multiply(ConstMatrix<T> x, ConstMatrix<T> w, Matrix<T> y, Into into) {
  gemm<T>({CblasNoTrans, x.cols}, x.data, {CblasNoTrans, w.cols}, w.data, y, x.cols, into);
}

template <class T>
void multiply_transposed(ConstMatrix<T> dy, ConstMatrix<T> w, Matrix<T> dx, Into into) {
  gemm<T>({CblasNoTrans, dy.cols}, dy.data, {CblasTrans, w.cols}, w.data, dx, dy.cols, into);
}

template <class T>
void add_weight_gradient(ConstMatrix<T> x, ConstMatrix<T> dy, Matrix<T> dw) {
  gemm<T>({CblasTrans, x.cols}, x.data, {CblasNoTrans, dy.cols}, dy.data, dw, x.rows, Into::add);
}

template void multiply(ConstMatrix<float>, ConstMatrix<float>, Matrix<float>, Into);
template void multiply(ConstMatrix<double>, ConstMatrix<double>, Matrix<double>, Into);
template void multiply_transposed(ConstMatrix<float>, ConstMatrix<float>, Matrix<float>, Into);
template void multiply_transposed(ConstMatrix<double>, ConstMatrix<double>, Matrix<double>, Into);
template void add_weight_gradient(ConstMatrix<float>, ConstMatrix<float>, Matrix<float>);
template void add_weight_gradient(ConstMatrix<double>, ConstMatrix<double>, Matrix<double>);

}  // namespace distattn::kernels::dense

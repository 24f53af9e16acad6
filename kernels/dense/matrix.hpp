#pragma once
/// A dense row-major matrix in borrowed memory: what the kernels of the training step take.

#include <cstdint>
#include <type_traits>

namespace distattn::kernels::dense {

template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0, cols = 0;

  T* row(std::int64_t i) const { return data + i * cols; }
  std::int64_t size() const { return rows * cols; }
  operator Matrix<const T>() const requires(!std::is_const_v<T>) { return {data, rows, cols}; }
};

/// An argument that does not take part in deducing T, so that a Matrix<T> converts to it.
template <class T>
using ConstMatrix = std::type_identity_t<Matrix<const T>>;

/// Whether a kernel replaces what its result holds or adds to it.
enum class Into : std::uint8_t { overwrite, add };

}  // namespace distattn::kernels::dense

#pragma once
/// A strided view of [batch, sequence, heads, head_dim], convertible to and from DLPack.

#include <array>
#include <cstddef>
#include <cstdint>

#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Does not own its memory; strides count elements. A [sequence, heads, head_dim] tensor has shape[0] = 1. Statistics
/// (LSE: [batch, heads, sequence]) are viewed with head_dim 1 and permuted strides.
template <class Byte>
struct BasicTensorView {
  Byte* data = nullptr;
  DType dtype = DType::fp32;
  MemorySpace space = MemorySpace::host;
  std::array<std::int64_t, 4> shape{};    ///< batch, sequence, heads, head_dim
  std::array<std::int64_t, 4> strides{};  ///< elements between neighbours along each axis

  std::int64_t batch() const { return shape[0]; }
  std::int64_t sequence() const { return shape[1]; }
  std::int64_t heads() const { return shape[2]; }
  std::int64_t head_dim() const { return shape[3]; }

  /// Address of (b, s, h, 0).
  Byte* row(std::int64_t b, std::int64_t s, std::int64_t h) const {
    return data + (b * strides[0] + s * strides[1] + h * strides[2]) * static_cast<std::int64_t>(size_of(dtype));
  }

  operator BasicTensorView<const std::byte>() const requires(!std::is_const_v<Byte>) {
    return {data, dtype, space, shape, strides};
  }
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

/// The bytes from a tensor's lowest element to one past its highest; strides may be negative.
struct Extent {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;

  std::size_t bytes() const { return static_cast<std::size_t>(end - begin); }
};
inline Extent extent_of(const ConstTensorView& tensor) {
  std::int64_t low = 0, high = 0;
  for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    if (tensor.shape[axis] == 0) return {tensor.data, tensor.data};
    const std::int64_t reach = (tensor.shape[axis] - 1) * tensor.strides[axis];
    (reach < 0 ? low : high) += reach;
  }
  const auto bytes = static_cast<std::int64_t>(size_of(tensor.dtype));
  return {tensor.data + low * bytes, tensor.data + (high + 1) * bytes};
}

/// Dense row-major view of [batch, sequence, heads, head_dim].
template <class Byte>
BasicTensorView<Byte> dense_view(Byte* data, DType dtype, std::int64_t batch, std::int64_t sequence, std::int64_t heads,
                                 std::int64_t head_dim) {
  return {data,
          dtype,
          MemorySpace::host,
          {batch, sequence, heads, head_dim},
          {sequence * heads * head_dim, heads * head_dim, head_dim, 1}};
}

/// The same for fp32 elements.
inline TensorView dense_view(float* data, std::int64_t batch, std::int64_t sequence, std::int64_t heads,
                             std::int64_t head_dim) {
  return dense_view(reinterpret_cast<std::byte*>(data), DType::fp32, batch, sequence, heads, head_dim);
}

inline ConstTensorView dense_view(const float* data, std::int64_t batch, std::int64_t sequence, std::int64_t heads,
                                  std::int64_t head_dim) {
  return dense_view(reinterpret_cast<const std::byte*>(data), DType::fp32, batch, sequence, heads, head_dim);
}

/// Dense numbers of heads, viewed as [1, 1, heads, 1].
template <class Byte>
BasicTensorView<Byte> heads_view(Byte* data, DType dtype, std::int64_t heads) {
  return dense_view(data, dtype, 1, 1, heads, 1);
}

/// Dense [batch, heads, sequence] statistics, viewed as [batch, sequence, heads, 1].
template <class Byte>
BasicTensorView<Byte> statistics_view(Byte* data, DType dtype, std::int64_t batch, std::int64_t heads,
                                      std::int64_t sequence) {
  return {data, dtype, MemorySpace::host, {batch, sequence, heads, 1}, {heads * sequence, 1, sequence, 1}};
}

inline TensorView statistics_view(float* data, std::int64_t batch, std::int64_t heads, std::int64_t sequence) {
  return statistics_view(reinterpret_cast<std::byte*>(data), DType::fp32, batch, heads, sequence);
}

}  // namespace distattn
#pragma GCC visibility pop

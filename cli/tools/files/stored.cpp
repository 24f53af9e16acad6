#include "cli/tools/files/stored.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "distattn/convert.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// `data` itself, or a copy on a boundary of its elements, which `mapping` then owns.
const std::byte* aligned(const std::byte* data, std::int64_t bytes, std::int64_t element_bytes,
                         std::shared_ptr<const void>& mapping) {
  if (element_bytes == 0 || reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(element_bytes) == 0) {
    return data;
  }
  auto copy = std::make_shared<std::vector<std::byte>>(data, data + bytes);
  data = copy->data();
  mapping = std::move(copy);
  return data;
}

std::string name_of(StoredType type, const std::string& dtype) {
  switch (type) {
    case StoredType::int32:
      return "int32";
    case StoredType::int64:
      return "int64";
    case StoredType::other:
      return dtype.empty() ? "of a type that distattn does not read,"
                           : fmt::format("of dtype '{}', which distattn does not read,", dtype);
    default:
      return "floating-point";
  }
}

}  // namespace

std::optional<std::int64_t> checked_bytes(std::span<const std::int64_t> shape, std::int64_t element_bytes) {
  std::int64_t bytes = element_bytes;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    empty |= extent == 0;
    if (extent != 0 && __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

std::string to_string(std::span<const std::int64_t> shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

StoredArray::StoredArray(StoredType type, bool fortran_order, std::vector<std::int64_t> shape, const std::byte* data,
                         std::shared_ptr<const void> mapping, std::string origin, std::string dtype)
    : type_(type),
      fortran_order_(fortran_order),
      shape_(std::move(shape)),
      data_(data),
      mapping_(std::move(mapping)),
      origin_(std::move(origin)),
      dtype_(std::move(dtype)) {
  const auto bytes = checked_bytes(shape_, size_of(type_));
  DISTATTN_EXPECT(bytes.has_value());
  data_ = aligned(data_, *bytes, size_of(type_), mapping_);
}

ConstTensorView StoredArray::tensor() const {
  ConstTensorView view;
  switch (type_) {
    case StoredType::fp64:
      view.dtype = DType::fp64;
      break;
    case StoredType::fp32:
      view.dtype = DType::fp32;
      break;
    case StoredType::bf16:
      view.dtype = DType::bf16;
      break;
    case StoredType::fp16:
      view.dtype = DType::fp16;
      break;
    case StoredType::int32:
    case StoredType::int64:
    case StoredType::other:
      refuse(fmt::format("{} is {} (attention needs floating-point numbers): store it as float16, float32 or float64",
                         origin_, name_of(type_, dtype_)));
  }
  const std::size_t rank = shape_.size();
  if (rank != 3 && rank != 4) {
    refuse(
        fmt::format("{} has shape {} (expected [batch, sequence, heads, head_dim] or [sequence, heads, head_dim]): "
                    "reshape it",
                    origin_, to_string(shape_)));
  }
  view.data = data_;
  view.shape[0] = 1;
  std::copy(shape_.begin(), shape_.end(), view.shape.end() - static_cast<std::ptrdiff_t>(rank));
  // The batch that a rank-3 array lacks has one index, so its stride is never used.
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t axis = fortran_order_ ? 4 - rank + i : 3 - i;
    view.strides[axis] = stride;
    stride *= std::max<std::int64_t>(view.shape[axis], 1);
  }
  if (rank == 3) view.strides[0] = stride;
  return view;
}

std::vector<std::int64_t> StoredArray::integers() const {
  if (shape_.size() != 1 || (type_ != StoredType::int32 && type_ != StoredType::int64)) {
    refuse(fmt::format("{} is {} of shape {} (expected a list of int32): store it as a rank-1 int32 array", origin_,
                       name_of(type_, dtype_), to_string(shape_)));
  }
  std::vector<std::int64_t> values(index(shape_[0]));
  if (type_ == StoredType::int64) {
    std::copy_n(reinterpret_cast<const std::int64_t*>(data_), values.size(), values.begin());
  } else {
    std::copy_n(reinterpret_cast<const std::int32_t*>(data_), values.size(), values.begin());
  }
  return values;
}

std::vector<double> StoredArray::numbers() const {
  if (shape_.size() != 1 || type_ >= StoredType::int32) {
    refuse(fmt::format("{} is {} of shape {} (expected a list of float32): store it as a rank-1 float32 array", origin_,
                       name_of(type_, dtype_), to_string(shape_)));
  }
  std::vector<double> values(index(shape_[0]));
  convert(data_, static_cast<DType>(type_), reinterpret_cast<std::byte*>(values.data()), DType::fp64, shape_[0]);
  return values;
}

}  // namespace distattn

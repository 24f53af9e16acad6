#pragma once
/// What both file formats share: element sizes and the checked size of a shape.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cli/tools/arrays.hpp"

namespace distattn {

/// Bytes of an array, or nothing where an extent is negative or the product passes 63 bits. Extents of zero do not
/// hide the others: their product is checked too.
std::optional<std::int64_t> checked_bytes(std::span<const std::int64_t> shape, std::int64_t element_bytes);

/// Bytes of an element; 0 for `other`.
constexpr std::int64_t size_of(StoredType type) {
  switch (type) {
    case StoredType::fp64:
    case StoredType::int64:
      return 8;
    case StoredType::fp32:
    case StoredType::int32:
      return 4;
    case StoredType::bf16:
    case StoredType::fp16:
      return 2;
    case StoredType::other:
      return 0;
  }
  return 0;
}

/// "(4, 8, 64)"
std::string to_string(std::span<const std::int64_t> shape);

}  // namespace distattn

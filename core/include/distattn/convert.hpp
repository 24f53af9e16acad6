#pragma once
/// Elements from one type to another.

#include <cstddef>
#include <cstdint>

#include "distattn/types.hpp"

namespace distattn {

/// `count` elements, rounded to nearest even where `into_dtype` is narrower. The two must not overlap.
void convert(const std::byte* from, DType from_dtype, std::byte* into, DType into_dtype, std::int64_t count);

}  // namespace distattn

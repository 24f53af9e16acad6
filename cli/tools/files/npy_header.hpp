#pragma once
/// The header of NumPy's array file format, versions 1.0–3.0 (NEP 1).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/tools/arrays.hpp"

namespace distattn {

struct NpyHeader {
  StoredType type = StoredType::fp32;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;  ///< of the header: where the values begin
};

/// Throws Error(usage), naming `origin`, for anything but a little-endian float16/32/64 or int32/64 array.
NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& origin);

/// A version 1.0 header of a C-order float32 array, padded so that the values begin on a 64-byte boundary.
std::string npy_header(std::span<const std::int64_t> shape);

}  // namespace distattn

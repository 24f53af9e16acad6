#pragma once
/// The JSON header of a .safetensors file: {"name": {"dtype": "F16", "shape": [3, 4], "data_offsets": [0, 24]}, …}.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace distattn {

struct SafetensorsEntry {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> offsets;  ///< begin and end, in bytes from the end of the header
};

/// Entries by name, without `__metadata__`. Throws Error(usage), naming `origin`, for JSON of any other form: unknown,
/// repeated or missing fields, nesting, numbers that are negative, fractional or past 63 bits.
std::map<std::string, SafetensorsEntry> parse_safetensors_header(std::string_view json, const std::string& origin);

}  // namespace distattn

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/src/io/mapped_file.hpp"
#include "core/src/io/safetensors_header.hpp"
#include "core/src/io/stored.hpp"
#include "distattn/error.hpp"
#include "distattn/io.hpp"

namespace distattn {
namespace {

struct ElementType {
  StoredType type;
  std::int64_t bytes;
};

/// The types of the format, of which attention reads six.
ElementType element_type(std::string_view dtype, const std::string& origin) {
  if (dtype == "F64") return {StoredType::fp64, 8};
  if (dtype == "F32") return {StoredType::fp32, 4};
  if (dtype == "BF16") return {StoredType::bf16, 2};
  if (dtype == "F16") return {StoredType::fp16, 2};
  if (dtype == "I32") return {StoredType::int32, 4};
  if (dtype == "I64") return {StoredType::int64, 8};
  static constexpr std::pair<std::string_view, std::int64_t> others[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"U16", 2},  {"I16", 2}, {"U32", 4}, {"U64", 8},     {"C64", 8}};
  for (const auto& [name, bytes] : others) {
    if (dtype == name) return {StoredType::other, bytes};
  }
  refuse(fmt::format("{} has the unknown dtype '{}' (not one of the format's) store it as F16, BF16, F32 or F64",
                     origin, dtype));
}

/// Length of the header, from the first eight bytes.
std::size_t header_length(std::span<const std::byte> file, const std::string& origin) {
  constexpr std::size_t prefix = 8, most = 100'000'000;  // the format's own limit
  std::uint64_t length = 0;
  if (file.size() < prefix) {
    refuse(fmt::format("{} is not a .safetensors file (it has {} bytes) check the path", origin, file.size()));
  }
  for (std::size_t i = 0; i < prefix; ++i) length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  if (length > file.size() - prefix || length > most) {
    refuse(fmt::format("{} claims a header of {} bytes (the file has {}) it is truncated or not a .safetensors file",
                       origin, length, file.size()));
  }
  if (length == 0 || file[prefix] != std::byte{'{'}) {
    refuse(fmt::format("{} is not a .safetensors file (its header is no JSON object) check the path", origin));
  }
  return length;
}

/// Refuses offsets unless, in order, they cover 0 … size without hole or overlap.
void check_tiling(const std::map<std::string, SafetensorsEntry>& entries, std::int64_t size,
                  const std::string& origin) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const auto& [name, entry] : entries) ranges.emplace_back(entry.offsets[0], entry.offsets[1]);
  std::sort(ranges.begin(), ranges.end());
  std::int64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered) {
      refuse(fmt::format("{} has tensors with {} (bytes {} to {} of its data) the file is damaged", origin,
                         begin < covered ? "overlapping data" : "a hole between them", std::min(begin, covered),
                         std::max(begin, covered)));
    }
    covered = end;
  }
  if (covered != size) {
    refuse(fmt::format("{} has {} bytes of data (its header describes {}) the file is {}", origin, size, covered,
                       size < covered ? "truncated" : "longer than its header says"));
  }
}

void check_entry(const SafetensorsEntry& entry, std::int64_t element_bytes, const std::string& origin) {
  const auto bytes = checked_bytes(entry.shape, element_bytes);
  if (!bytes) {
    refuse(fmt::format("{} claims shape {} (its size passes 63 bits) the file is damaged", origin,
                       to_string(entry.shape)));
  }
  if (entry.offsets.size() != 2 || entry.offsets[0] > entry.offsets[1] ||
      entry.offsets[1] - entry.offsets[0] != *bytes) {
    refuse(fmt::format("{} has data_offsets {} (shape {} of {} needs {} bytes) the file is damaged", origin,
                       to_string(entry.offsets), to_string(entry.shape), entry.dtype, *bytes));
  }
}

}  // namespace

std::map<std::string, StoredArray> read_safetensors(const std::filesystem::path& path) {
  const std::string file_name = path.filename().string();
  const MappedFile file = map_file(path);
  const std::size_t length = header_length(file.bytes, file_name);
  const auto header = file.bytes.subspan(8, length), data = file.bytes.subspan(8 + length);
  const auto entries =
      parse_safetensors_header({reinterpret_cast<const char*>(header.data()), header.size()}, file_name);

  for (const auto& [name, entry] : entries) {
    const std::string origin = file_name + ":" + name;
    check_entry(entry, element_type(entry.dtype, origin).bytes, origin);
  }
  check_tiling(entries, static_cast<std::int64_t>(data.size()), file_name);

  std::map<std::string, StoredArray> arrays;
  for (const auto& [name, entry] : entries) {
    const std::string origin = file_name + ":" + name;
    const StoredType type = element_type(entry.dtype, origin).type;
    arrays.try_emplace(name, type, false, entry.shape, data.data() + entry.offsets[0], file.owner, origin);
  }
  return arrays;
}

}  // namespace distattn

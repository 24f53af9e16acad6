#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/tools/arrays.hpp"
#include "cli/tools/files/mapped_file.hpp"
#include "cli/tools/files/safetensors_header.hpp"
#include "cli/tools/files/stored.hpp"
#include "distattn/error.hpp"

namespace distattn {
namespace {

struct ElementType {
  StoredType type;
  std::int64_t bits;  ///< of an element; 0: not known
};

/// The types of the format, of which attention reads six. What a later version adds is known by its name alone, and
/// refused when it is asked for.
ElementType element_type(std::string_view dtype) {
  if (dtype == "F64") return {StoredType::fp64, 64};
  if (dtype == "F32") return {StoredType::fp32, 32};
  if (dtype == "BF16") return {StoredType::bf16, 16};
  if (dtype == "F16") return {StoredType::fp16, 16};
  if (dtype == "I32") return {StoredType::int32, 32};
  if (dtype == "I64") return {StoredType::int64, 64};
  static constexpr std::pair<std::string_view, std::int64_t> others[] = {
      {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"BOOL", 8},        {"U8", 8},      {"I8", 8},
      {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E8M0", 8}, {"U16", 16},
      {"I16", 16},    {"U32", 32},    {"U64", 64},        {"C64", 64}};
  for (const auto& [name, bits] : others) {
    if (dtype == name) return {StoredType::other, bits};
  }
  return {StoredType::other, 0};
}

/// Length of the header, from the first eight bytes.
std::size_t header_length(std::span<const std::byte> file, const std::string& origin) {
  constexpr std::size_t prefix = 8, most = 100'000'000;  // the format's own limit
  std::uint64_t length = 0;
  if (file.size() < prefix) {
    refuse(fmt::format("{} is not a .safetensors file (it has {} bytes): check the path", origin, file.size()));
  }
  for (std::size_t i = 0; i < prefix; ++i) length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  if (length > file.size() - prefix || length > most) {
    refuse(fmt::format("{} claims a header of {} bytes (the file has {}): it is truncated or not a .safetensors file",
                       origin, length, file.size()));
  }
  if (length == 0 || file[prefix] != std::byte{'{'}) {
    refuse(fmt::format("{} is not a .safetensors file (its header is not a JSON object): check the path", origin));
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
      refuse(fmt::format("{} has tensors with {} (bytes {} to {} of its data): the file is damaged", origin,
                         begin < covered ? "overlapping data" : "a hole between them", std::min(begin, covered),
                         std::max(begin, covered)));
    }
    covered = end;
  }
  if (covered != size) {
    refuse(fmt::format("{} has {} bytes of data (its header describes {}): the file is {}", origin, size, covered,
                       size < covered ? "truncated" : "longer than its header says"));
  }
}

/// Bytes of an entry's values; of an unknown type as many as its offsets say. Refuses what is no whole number of them.
std::int64_t bytes_of(const SafetensorsEntry& entry, const std::string& origin) {
  const std::int64_t bits_each = element_type(entry.dtype).bits;
  const auto elements = checked_bytes(entry.shape, 1);
  std::int64_t bits = 0;
  if (!elements || __builtin_mul_overflow(*elements, bits_each, &bits)) {
    refuse(fmt::format("{} claims shape {} (its size passes 63 bits): the file is damaged", origin,
                       to_string(entry.shape)));
  }
  if (bits % 8 != 0) {
    refuse(fmt::format("{} has {} elements of {} (they do not fill whole bytes): the file is damaged", origin,
                       *elements, entry.dtype));
  }
  return bits_each == 0 ? entry.offsets[1] - entry.offsets[0] : bits / 8;
}

void check_entry(const SafetensorsEntry& entry, const std::string& origin) {
  const bool ordered = entry.offsets.size() == 2 && entry.offsets[0] <= entry.offsets[1];
  if (ordered && entry.offsets[1] - entry.offsets[0] == bytes_of(entry, origin)) return;
  refuse(fmt::format("{} has data_offsets {} (shape {} of {}{}): the file is damaged", origin, to_string(entry.offsets),
                     to_string(entry.shape), entry.dtype,
                     ordered ? fmt::format(" needs {} bytes", bytes_of(entry, origin)) : ""));
}

}  // namespace

std::map<std::string, StoredArray> read_safetensors(const std::filesystem::path& path) {
  const std::string file_name = path.filename().string();
  const MappedFile file = map_file(path);
  const std::size_t length = header_length(file.bytes, file_name);
  const auto header = file.bytes.subspan(8, length), data = file.bytes.subspan(8 + length);
  const auto entries =
      parse_safetensors_header({reinterpret_cast<const char*>(header.data()), header.size()}, file_name);

  for (const auto& [name, entry] : entries) check_entry(entry, file_name + ":" + name);
  check_tiling(entries, static_cast<std::int64_t>(data.size()), file_name);

  std::map<std::string, StoredArray> arrays;
  for (const auto& [name, entry] : entries) {
    const std::string origin = file_name + ":" + name;
    const StoredType type = element_type(entry.dtype).type;
    arrays.try_emplace(name, type, false, entry.shape, data.data() + entry.offsets[0], file.owner, origin, entry.dtype);
  }
  return arrays;
}

}  // namespace distattn

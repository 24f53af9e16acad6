#include <fmt/format.h>

#include "cli/tools/arrays.hpp"
#include "cli/tools/files/mapped_file.hpp"
#include "cli/tools/files/npy_header.hpp"
#include "cli/tools/files/stored.hpp"
#include "distattn/error.hpp"

namespace distattn {

StoredArray read_npy(const std::filesystem::path& path) {
  const std::string origin = path.filename().string();
  const MappedFile file = map_file(path);
  NpyHeader header = parse_npy_header(file.bytes, origin);
  const auto bytes = checked_bytes(header.shape, size_of(header.type));
  if (!bytes) {
    refuse(fmt::format("{} claims shape {} (its size passes 63 bits): the file is damaged", origin,
                       to_string(header.shape)));
  }
  const auto present = static_cast<std::int64_t>(file.bytes.size() - header.bytes);
  if (present != *bytes) {
    refuse(fmt::format("{} has {} bytes of values (shape {} needs {}): the file is {}", origin, present,
                       to_string(header.shape), *bytes,
                       present < *bytes ? "truncated" : "longer than its header says"));
  }
  return {header.type, header.fortran_order, std::move(header.shape), file.bytes.data() + header.bytes, file.owner,
          origin};
}

}  // namespace distattn

#pragma once
/// A whole file, mapped read-only.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace distattn {

/// The bytes of a regular file for as long as `owner` lives.
struct MappedFile {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/// Throws Error(usage) when `path` cannot be opened or is not a regular file.
MappedFile map_file(const std::filesystem::path& path);

}  // namespace distattn

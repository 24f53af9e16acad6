#pragma once
/// Data files that are part of the library: machines.

#include <optional>
#include <span>
#include <string_view>

namespace distattn {

struct EmbeddedFile {
  std::string_view name;  ///< "machines/dgx-a100x2"
  std::string_view text;
};

/// By name.
std::span<const EmbeddedFile> embedded_files();

inline std::optional<std::string_view> embedded_file(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return file.text;
  }
  return std::nullopt;
}

}  // namespace distattn

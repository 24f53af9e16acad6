#pragma once
/// Files that are part of the tools: papers, lengths of documents, the parts of a page.

#include <optional>
#include <span>
#include <string_view>

namespace distattn::tools {

struct EmbeddedFile {
  std::string_view name;  ///< "papers/attention2d", "page.html"
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

}  // namespace distattn::tools

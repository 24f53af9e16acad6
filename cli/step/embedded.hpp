#pragma once
/// The papers' data files, which are part of the program.

#include <span>
#include <string_view>

namespace distattn::step {

struct EmbeddedFile {
  std::string_view name;  ///< "distflashattn"
  std::string_view text;
};

/// By name.
std::span<const EmbeddedFile> embedded_files();

}  // namespace distattn::step

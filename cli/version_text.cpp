#include "version_text.hpp"

#include <fmt/format.h>

#include "distattn/registry.hpp"
#include "distattn/version.hpp"

namespace distattn::cli {

std::string version_text() {
  std::string text = fmt::format("distattn {} ({})", version(), commit());
  for (const BackendInfo& info : built_backends()) {
    if (!info.version.empty()) text += fmt::format("\n{}: {}", info.name, info.version);
  }
  return text;
}

}  // namespace distattn::cli

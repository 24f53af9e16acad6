#include "overwriting.hpp"

#include <fmt/format.h>

#include <system_error>

#include "distattn/error.hpp"

namespace distattn::cli {

void refuse_overwriting(const std::vector<std::filesystem::path>& read,
                        const std::vector<std::filesystem::path>& written) {
  for (const auto& output : written) {
    for (const auto& input : read) {
      std::error_code missing;  // what is not there cannot be overwritten
      if (!std::filesystem::equivalent(input, output, missing)) continue;
      refuse(fmt::format("{} would be overwritten (it is read as {}): write to another place", output.string(),
                         input.string()));
    }
  }
}

}  // namespace distattn::cli

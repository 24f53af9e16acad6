#pragma once
/// Bootstraps of launchers that say everything in variables.

#include <optional>

#include "backends/launch/launcher.hpp"
#include "backends/registration.hpp"

namespace distattn::backends::launch {

/// Usable where `environment` finds that the launcher started this process; `variables` are those that it needs, in
/// words.
Registration by_variables(const char* name, std::optional<LauncherEnvironment> (*environment)(const Variables&),
                          const char* variables);

}  // namespace distattn::backends::launch

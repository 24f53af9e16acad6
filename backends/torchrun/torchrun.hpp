#pragma once
/// Ranks that torchrun started, or anybody who numbers them and sets its address.

#include <optional>

#include "backends/launch/launcher.hpp"

namespace distattn::backends::launch {

/// From MASTER_ADDR and MASTER_PORT, and a rank and a size of anybody's; nothing where these are not all there. Throws
/// Error(environment) naming a variable that is wrong.
std::optional<LauncherEnvironment> torchrun_environment(const Variables& variables);

}  // namespace distattn::backends::launch

#pragma once
/// Ranks that are the tasks of a step of Slurm's srun.

#include <optional>

#include "backends/launch/launcher.hpp"

namespace distattn::backends::launch {

/// Nothing outside of a step. Throws Error(environment) naming a variable that is wrong, or missing.
std::optional<LauncherEnvironment> slurm_environment(const Variables& variables);

}  // namespace distattn::backends::launch

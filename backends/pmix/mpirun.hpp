#pragma once
/// Ranks that Open MPI's mpirun started, as its variables say.

#include <optional>

#include "backends/launch/launcher.hpp"

namespace distattn::backends::launch {

/// mpirun's server serves each rank of PMIx once, and so one run of a script: its variables say as much where all ranks
/// are on one node, or where DISTATTN_ADDRESS is set. Nothing otherwise. Throws Error(environment) naming a variable
/// that is wrong.
std::optional<LauncherEnvironment> mpirun_environment(const Variables& variables);

}  // namespace distattn::backends::launch

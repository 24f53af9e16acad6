#pragma once
/// Whether ranks of one machine can use shared memory between them.

#include "distattn/bootstrap.hpp"

namespace distattn::backends::ucx {

/// Whether those that are on one machine see the same processes, segments and files of shared memory. UCX takes it for
/// granted, and ranks of which one is in a container would wait for each other. A collective.
bool can_share_memory(Bootstrap& bootstrap);

}  // namespace distattn::backends::ucx

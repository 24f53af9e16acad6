#pragma once
/// Spaces of the host as devices with memory of their own: the very templates that GPUs are given, with teams of
/// several threads where the space has them.

#include <vector>

#include "kernels/portable/device.hpp"

namespace distattn::test {

/// Of this build, each made once.
const std::vector<kernels::portable::SpaceDevice*>& hosts_as_devices();

}  // namespace distattn::test

#pragma once
/// Spaces of the host as devices with memory of their own: the very templates that GPUs are given, with teams of
/// several threads where the space has them.

#include <string>

#include "distattn/types.hpp"
#include "kernels/portable/device.hpp"

namespace distattn::test {

/// What they are as devices (DeviceTraits). No transport reaches their memory, nor does anything but their own copies.
struct HostTraits {
  static constexpr MemorySpace space = MemorySpace::other;
  static constexpr int team = 0;  // as many threads as the caller says

  static std::string why_not() { return ""; }
  static int count() { return 0; }
};

kernels::portable::SpaceDevice& serial_as_device();
kernels::portable::SpaceDevice& openmp_as_device();

}  // namespace distattn::test

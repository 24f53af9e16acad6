#pragma once
/// What a built backend tells the registry.

#include <functional>
#include <memory>
#include <vector>

#include "distattn/registry.hpp"

namespace distattn::backends {

namespace launch {
struct LauncherVariables;
}

struct Registration {
  BackendInfo info;  ///< what is known without looking: nothing is loaded for it
  /// Devices, and providers: the device that BackendInfo::device names, computing with their kernels.
  std::function<std::unique_ptr<Device>(const DeviceOptions&)> make_device;
  std::function<std::unique_ptr<Transport>(Bootstrap&)> make_transport = {};  ///< transports between processes only
  std::function<std::unique_ptr<Bootstrap>(const BootstrapOptions&)> make_bootstrap = {};  ///< likewise
  /// Loads the library behind it and completes `info`: whether it is usable, why (not), the loaded version. Empty:
  /// nothing is to be loaded.
  std::function<void(BackendInfo&)> look = {};
  /// More for info.why, which takes longer to find out. Throws Error where it cannot.
  std::function<std::string()> findings = {};
};

/// What bootstraps say of their launchers, in the order of the registry.
std::vector<const launch::LauncherVariables*> launchers();

/// Seconds that clocks can count, also for infinity; Error(usage) for what is not above 0.
double checked_timeout(double seconds);

}  // namespace distattn::backends

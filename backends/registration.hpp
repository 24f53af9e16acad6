#pragma once
/// What a built backend tells the registry.

#include <functional>
#include <memory>

#include "distattn/registry.hpp"

namespace distattn::backends {

struct Registration {
  BackendInfo info;
  std::function<std::unique_ptr<Device>(const DeviceOptions&)> make_device;   ///< devices only
  std::function<std::unique_ptr<Transport>(Bootstrap&)> make_transport = {};  ///< transports between processes only
  std::function<std::unique_ptr<Bootstrap>(const BootstrapOptions&)> make_bootstrap = {};  ///< likewise
};

}  // namespace distattn::backends

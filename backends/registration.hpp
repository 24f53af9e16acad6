#pragma once
/// What a built backend tells the registry.

#include <functional>
#include <memory>

#include "distattn/registry.hpp"

namespace distattn::backends {

struct Registration {
  BackendInfo info;
  std::function<std::unique_ptr<Device>(const DeviceOptions&)> make_device;  ///< devices only
};

}  // namespace distattn::backends

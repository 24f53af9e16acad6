#pragma once
/// Which devices the device suite is about. Each test program defines device_world().

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distattn/engine.hpp"
#include "distattn/registry.hpp"

namespace distattn::test {

struct DeviceKind {
  std::string name;
  DType dtype = DType::fp32;  ///< that it computes
  std::function<std::unique_ptr<Device>(const DeviceOptions& options)> make;
  std::function<void(Problem&)> beyond{};  ///< changes a problem into one that it does not compute; empty: it does all
  bool repeats = true;                     ///< gradients have the same bits in every run
};

const std::vector<DeviceKind>& device_world();

}  // namespace distattn::test

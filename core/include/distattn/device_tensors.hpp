#pragma once
/// A rank's tensors in the memory of its device, for many calls on the same ones.

#include <memory>
#include <utility>
#include <vector>

#include "distattn/engine.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// A device takes tensors in host memory too, but then copies them there and back in every call.
class DeviceTensors {
 public:
  /// Copies what `host` has of tensors in host memory, results with the values that they hold; others stay where they
  /// are, and so do all on a device that computes in host memory. Device and tensors must outlive it. Throws
  /// Error(environment) where they do not fit.
  DeviceTensors(Device& device, const Bindings& host);

  /// The same tensors with the same strides, where the device computes on them as they lie.
  const Bindings& bindings() const { return bindings_; }
  /// Copies results into the tensors that the constructor was given, with whatever lies between their elements.
  void fetch();

 private:
  struct Copy {
    TensorView host;
    std::shared_ptr<std::byte> memory;
  };

  template <class Byte>
  std::shared_ptr<std::byte> bring(BasicTensorView<Byte>& tensor);

  Device& device_;
  Bindings bindings_;
  std::vector<std::shared_ptr<std::byte>> inputs_;
  std::vector<Copy> results_;
};

}  // namespace distattn
#pragma GCC visibility pop

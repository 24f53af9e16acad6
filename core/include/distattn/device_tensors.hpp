#pragma once
/// A rank's tensors copied to the memory of its device, for many calls on the same tensors.

#include <memory>
#include <utility>
#include <vector>

#include "distattn/engine.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Saves copies: a device that is given tensors in host memory copies them to its own memory and back in every call.
class DeviceTensors {
 public:
  /// Copies the tensors of `host` that are in host memory, results with the values that they hold. Other tensors stay
  /// where they are, and so do all tensors if the device computes in host memory. Device and tensors must outlive this
  /// object. Throws Error(environment) if they do not fit.
  DeviceTensors(Device& device, const Bindings& host);

  /// The same tensors with the same strides, in memory that the device computes on directly.
  const Bindings& bindings() const { return bindings_; }
  /// Copies results back into the tensors that the constructor was given, including the bytes between their elements.
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

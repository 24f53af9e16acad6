#pragma once
/// cuDNN as it is found when the program runs: no library of it is linked.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/cudnn/api.hpp"

namespace distattn::backends::cudnn {

/// The functions of libcudnn.so.9 that the provider calls.
struct Library {
  GetVersion* get_version = nullptr;
  Create* create = nullptr;
  Destroy* destroy = nullptr;
  SetStream* set_stream = nullptr;
  CreateDescriptor* create_descriptor = nullptr;
  DestroyDescriptor* destroy_descriptor = nullptr;
  SetAttribute* set_attribute = nullptr;
  GetAttribute* get_attribute = nullptr;
  Finalize* finalize = nullptr;
  Execute* execute = nullptr;
  GetErrorString* error_string = nullptr;
  GetLastErrorString* last_error = nullptr;
  std::string version;  ///< as "9.19.0"

  /// Throws Error(environment): "cuDNN could not <what> (…)", with what cuDNN says itself.
  void check(Status status, const char* what) const;
};

/// The library of that name or path, loaded once and kept. Throws Error(environment) where it is missing or too old.
const Library& load_library(const std::string& name = "libcudnn.so.9");

std::string version_text(std::size_t version);

/// A descriptor of cuDNN's backend, destroyed at the end of its life.
class Descriptor {
 public:
  Descriptor(const Library& library, DescriptorType type);

  template <class T>
  Descriptor& set(Attribute name, AttributeType type, const std::vector<T>& values) {
    return set(name, type, static_cast<std::int64_t>(values.size()), values.data());
  }
  template <class T>
  Descriptor& set(Attribute name, AttributeType type, const T& value) {
    return set(name, type, 1, &value);
  }
  Descriptor& set(Attribute name, const Descriptor& value) {
    const DescriptorHandle handle = value.handle();
    return set(name, AttributeType::descriptor, 1, &handle);
  }
  /// No attribute can be set after this. `what` is being done with it.
  Descriptor& finalize(const char* what);
  /// Whether finalizing succeeds, where there are others to try.
  bool can_finalize() { return library_->finalize(handle()) == Status::success; }

  DescriptorHandle handle() const { return handle_.get(); }

 private:
  Descriptor& set(Attribute name, AttributeType type, std::int64_t count, const void* values);

  const Library* library_;
  std::shared_ptr<void> handle_;
};

}  // namespace distattn::backends::cudnn

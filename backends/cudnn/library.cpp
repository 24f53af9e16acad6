#include "backends/cudnn/library.hpp"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include <fmt/core.h>

#include "backends/room_for.hpp"
#include "distattn/error.hpp"

namespace distattn::backends::cudnn {
namespace {

// -infinity where a mask hides a score is known since 9.10.0; NVIDIA's front end refuses 9.10.0 and 9.10.1 for faults.
constexpr std::size_t oldest_version = 91002;

template <class Function>
void find(void* library, const std::string& file, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw Error(ErrorKind::environment, fmt::format("{} has no {} (it is older than cuDNN {} or something else): "
                                                    "install a newer cuDNN",
                                                    file, name, version_text(oldest_version)));
  }
}

Library load(const std::string& file) {
  expect_room_for("cuDNN");
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    throw Error(ErrorKind::environment, fmt::format("cuDNN cannot be loaded ({}): install cuDNN 9, or add its folder "
                                                    "to LD_LIBRARY_PATH",
                                                    why != nullptr ? why : file.c_str()));
  }
  Library library;
  find(handle, file, "cudnnGetVersion", library.get_version);
  find(handle, file, "cudnnCreate", library.create);
  find(handle, file, "cudnnDestroy", library.destroy);
  find(handle, file, "cudnnSetStream", library.set_stream);
  find(handle, file, "cudnnBackendCreateDescriptor", library.create_descriptor);
  find(handle, file, "cudnnBackendDestroyDescriptor", library.destroy_descriptor);
  find(handle, file, "cudnnBackendSetAttribute", library.set_attribute);
  find(handle, file, "cudnnBackendGetAttribute", library.get_attribute);
  find(handle, file, "cudnnBackendFinalize", library.finalize);
  find(handle, file, "cudnnBackendExecute", library.execute);
  find(handle, file, "cudnnGetErrorString", library.error_string);
  find(handle, file, "cudnnGetLastErrorString", library.last_error);
  const std::size_t version = library.get_version();
  library.version = version_text(version);
  if (version < oldest_version) {
    throw Error(ErrorKind::environment, fmt::format("cuDNN {} is too old ({} is needed): install a newer one",
                                                    library.version, version_text(oldest_version)));
  }
  return library;
}

}  // namespace

void Library::check(Status status, const char* what) const {
  if (status == Status::success) return;
  char more[512] = {};
  last_error(more, sizeof more);
  throw Error(ErrorKind::environment, fmt::format("cuDNN could not {} ({}{}{})", what, error_string(status),
                                                  more[0] != '\0' ? ": " : "", more));
}

const Library& load_library(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, Library> loaded;
  const std::scoped_lock lock(mutex);
  const auto found = loaded.find(name);
  return found != loaded.end() ? found->second : loaded.emplace(name, load(name)).first->second;
}

std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Descriptor::Descriptor(const Library& library, DescriptorType type) : library_(&library) {
  DescriptorHandle made = nullptr;
  library.check(library.create_descriptor(type, &made), "make a descriptor");
  handle_ = {made, [destroy = library.destroy_descriptor](void* descriptor) { destroy(descriptor); }};
}

Descriptor& Descriptor::set(Attribute name, AttributeType type, std::int64_t count, const void* values) {
  library_->check(library_->set_attribute(handle(), name, type, count, values), "describe an attention");
  return *this;
}

Descriptor& Descriptor::finalize(const char* what) {
  library_->check(library_->finalize(handle()), what);
  return *this;
}

}  // namespace distattn::backends::cudnn

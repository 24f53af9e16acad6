#include "backends/identity.hpp"

#include <unistd.h>

#include <fstream>

#include "distattn/index.hpp"

namespace distattn::backends {

std::string boot_identity() {
  std::string boot = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

std::string namespace_of(const char* kind) {
  char name[64] = {};
  const ssize_t length = ::readlink((std::string("/proc/self/ns/") + kind).c_str(), name, sizeof name - 1);
  return length > 0 ? std::string(name, index(length)) : std::string(kind) + ":unknown";
}

}  // namespace distattn::backends

#include "kernels/portable/spaces.hpp"

#include <mutex>

#include "distattn/error.hpp"
#include "kernels/portable/runtime.hpp"

namespace distattn::kernels::portable {

namespace {

struct Claimed {
  std::mutex mutex;
  std::string name;
  int times = 0;
};

Claimed& claimed() {
  static auto* const only = new Claimed;  // never destroyed: devices may be statics
  return *only;
}

}  // namespace

SpaceClaim::SpaceClaim(std::string name) {
  Claimed& here = claimed();
  const std::string why = why_no_kokkos();
  if (!why.empty()) throw Error(ErrorKind::environment, why);
  const std::lock_guard lock(here.mutex);
  if (here.times > 0 && here.name != name) {
    refuse("a rank of this process asks for " + name + " while another computes on " + here.name +
           " (a process has one Kokkos, whose threads serve one space): ask for the same");
  }
  here.name = std::move(name);
  ++here.times;
}

SpaceClaim::~SpaceClaim() {
  Claimed& here = claimed();
  const std::lock_guard lock(here.mutex);
  --here.times;
}

}  // namespace distattn::kernels::portable

#include "backends/room_for.hpp"

#include <fmt/core.h>

#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"

namespace distattn::backends {

void expect_room_for(const char* library) {
  // glibc reserves 128 MiB for the heap of each new thread, and gives half of it back at once. Meanwhile another
  // thread, such as the one that UCX 1.13 asserts to exist, may get no stack.
  constexpr std::int64_t needed = std::int64_t{192} << 20;
  const std::int64_t left = host_resources().process_free_bytes;
  if (left >= needed) return;
  throw Error(
      ErrorKind::environment,
      fmt::format("{} is not used where ulimit -v or -d leaves {} MiB (it would end the process if it were refused "
                  "memory; {} MiB are enough): raise that limit",
                  library, left >> 20, needed >> 20));
}

}  // namespace distattn::backends

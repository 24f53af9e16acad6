#include "backends/caller_memory.hpp"

#include <fmt/core.h>

namespace distattn::backends {

std::shared_ptr<std::byte> from_caller(const Allocator& allocator, std::size_t bytes, Rank rank) {
  std::shared_ptr<std::byte> memory = allocator(bytes);
  if (reinterpret_cast<std::uintptr_t>(memory.get()) % buffer_alignment != 0 || (memory == nullptr && bytes > 0)) {
    throw Error(ErrorKind::environment,
                fmt::format("rank {} was given no memory of {} bytes on a boundary of {} (by the caller's allocator): "
                            "correct it, or leave it out",
                            rank, bytes, buffer_alignment));
  }
  return memory;
}

}  // namespace distattn::backends

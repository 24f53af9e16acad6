#pragma once
/// Memory that begins on the boundaries of buffers.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include <fmt/core.h>

#include "distattn/error.hpp"
#include "distattn/schedule.hpp"

namespace distattn {

/// `bytes` rounded up to a multiple of buffer_alignment.
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

/// Host memory of at least `bytes` bytes, not cleared. Throws Error(environment) if too little is left.
inline std::shared_ptr<std::byte> allocate_aligned(std::size_t bytes) {
  void* const memory = std::aligned_alloc(buffer_alignment, aligned(std::max(bytes, buffer_alignment)));
  if (memory == nullptr) throw Error(ErrorKind::environment, fmt::format("no {} bytes of memory are left", bytes));
  return {static_cast<std::byte*>(memory), std::free};
}

}  // namespace distattn

#pragma once
/// Memory for buffers that the caller plans.

#include "distattn/registry.hpp"

namespace distattn::backends {

/// Memory of the caller's allocator for `rank`. Throws Error(environment) if it is none, or not on a boundary of
/// buffer_alignment bytes.
std::shared_ptr<std::byte> from_caller(const Allocator& allocator, std::size_t bytes, Rank rank);

}  // namespace distattn::backends

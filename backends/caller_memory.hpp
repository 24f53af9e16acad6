#pragma once
/// Memory for buffers that the caller plans.

#include "distattn/registry.hpp"

namespace distattn::backends {

/// What the caller's allocator gives for `rank`. Throws Error(environment) when it is nothing, or not on a boundary of
/// 64 bytes.
std::shared_ptr<std::byte> from_caller(const Allocator& allocator, std::size_t bytes, Rank rank);

}  // namespace distattn::backends

#pragma once
/// Sharded attention over the NCCL transport, as tests of it run it.

#include <dlfcn.h>

#include <string>

#include "catch.hpp"
#include "nccl/rank_world.hpp"
#include "tests/support/sharded.hpp"

namespace distattn::test {

constexpr std::uint64_t seed = 71;

/// NCCL for all messages, or another transport for the far ones.
constexpr std::optional<MemorySpace> far_transports[] = {std::nullopt, MemorySpace::host, MemorySpace::cuda};

/// Both passes.
ShardedRun run_of(const std::string& schedule, int ranks, const NcclWorld& world = {.seed = seed});
/// What the run of an uneven problem, in which every rank exchanges in every step, throws; empty: nothing.
std::string failure_of(const ShardedRun& run);

/// What a test tells the library in NCCL's place, which is loaded.
template <class Function>
Function* of_standin(const char* name) {
  void* const library = dlopen(DISTATTN_NCCL_STANDIN, RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace distattn::test

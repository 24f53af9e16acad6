#pragma once
/// How ranks of one machine share its processors, also where each is bound to some of its own.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "distattn/host_resources.hpp"

namespace distattn::backends::launch {

/// What one process may use, as the others are told.
struct CoreClaim {
  std::string machine;  ///< boot_identity()
  ProcessorSet processors;
  std::vector<ControlGroup> groups;
  /// Whether the processors' numbers are those of the machine. A sandbox may make them up: then each process has those
  /// that it is told of, and nobody knows who else has them.
  bool places = true;
};

CoreClaim own_claim();
std::vector<std::byte> to_bytes(const CoreClaim& claim);
/// Throws Error(peer) where another version of the program wrote it.
CoreClaim claim_from(std::span<const std::byte> bytes);

/// How many of the processes are on the machine of `claims[own]`, and how many of these the group holds, itself or
/// through one below it.
int count_on_machine(std::span<const CoreClaim> claims, std::size_t own);
int count_in_group(std::span<const CoreClaim> claims, std::size_t own, const ControlGroup& group);

/// Threads that the process of `claims[own]` should compute with: a processor counts in equal parts for all processes
/// of its machine that may run on it, and so does the quota of each group for all that it holds. At least 1.
int fair_cores(std::span<const CoreClaim> claims, std::size_t own);

/// Cores that the processes of the machine of `claims[own]` have together. At least 1.
int cores_together(std::span<const CoreClaim> claims, std::size_t own);

}  // namespace distattn::backends::launch

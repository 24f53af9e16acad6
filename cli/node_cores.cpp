#include "node_cores.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>

#include "distattn/host_resources.hpp"
#include "gather.hpp"

namespace distattn::cli {
namespace {

/// As the kernel writes them, for machines of any size.
using CoreMask = std::array<std::uint64_t, 256>;

struct Share {
  Rank node = 0;  ///< its first rank
  int threads = 0;
  CoreMask mask{};
};

}  // namespace

NodeCores node_cores(World& world, int threads) {
  if (world.in_process()) return {usable_cores(), world.size() * threads};
  Share mine{world.first() - world.local_rank(), threads, {}};
  ::sched_getaffinity(0, sizeof mine.mask, reinterpret_cast<cpu_set_t*>(mine.mask.data()));
  CoreMask together{};
  NodeCores node{0, 0};
  for (const Share& share : gather<Share>(world, std::span(&mine, 1))) {
    if (share.node != mine.node) continue;
    node.threads += share.threads;
    std::transform(share.mask.begin(), share.mask.end(), together.begin(), together.begin(), std::bit_or<>());
  }
  for (const std::uint64_t word : together) node.cores += std::popcount(word);
  node.cores = std::max(1, node.cores);
  return node;
}

}  // namespace distattn::cli

#include "cli/run/node_cores.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>

#include "cli/run/all_gather.hpp"
#include "distattn/host_resources.hpp"

namespace distattn::cli {
namespace {

/// As HostResources has them, for machines of any size.
using CoreMask = std::array<std::uint64_t, 256>;

struct Share {
  Rank node = 0;  ///< its first rank
  int threads = 0;
  double quota = 0;  ///< its part of the quotas that hold it
  CoreMask mask{};
};

Share share_of(const World& world, int threads) {
  const HostResources host = host_resources();
  Share mine{world.first() - world.local_rank(), threads, std::numeric_limits<double>::infinity(), {}};
  for (const ControlGroup& group : host.groups) mine.quota = std::min(mine.quota, group.quota / world.ranks_in(group));
  std::copy_n(host.processors.begin(), std::min(host.processors.size(), mine.mask.size()), mine.mask.begin());
  return mine;
}

}  // namespace

NodeCores node_cores(World& world, int threads) {
  if (world.in_process()) return {usable_cores(), world.size() * threads};
  const Share mine = share_of(world, threads);
  HostResources together;
  together.processors.resize(mine.mask.size());
  together.quota = 1e-9;  // parts of a quota add up to it but for rounding
  NodeCores node{0, 0};
  for (const Share& share : all_gather<Share>(world, std::span(&mine, 1))) {
    if (share.node != mine.node) continue;
    node.threads += share.threads;
    together.quota += share.quota;
    std::transform(share.mask.begin(), share.mask.end(), together.processors.begin(), together.processors.begin(),
                   std::bit_or<>());
  }
  node.cores = together.cores();
  return node;
}

}  // namespace distattn::cli

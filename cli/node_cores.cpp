#include "node_cores.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>

#include "distattn/host_resources.hpp"
#include "gather.hpp"

namespace distattn::cli {
namespace {

/// As HostResources has them, for machines of any size.
using CoreMask = std::array<std::uint64_t, 256>;

struct Share {
  Rank node = 0;  ///< its first rank
  int threads = 0;
  double quota = 0;
  std::uint64_t quota_group = 0;
  CoreMask mask{};
};

Share share_of(const World& world, int threads) {
  const HostResources host = host_resources();
  Share mine{world.first() - world.local_rank(), threads, host.quota, host.quota_group, {}};
  std::copy_n(host.processors.begin(), std::min(host.processors.size(), mine.mask.size()), mine.mask.begin());
  return mine;
}

}  // namespace

NodeCores node_cores(World& world, int threads) {
  if (world.in_process()) return {usable_cores(), world.size() * threads};
  const Share mine = share_of(world, threads);
  HostResources together{.processors = ProcessorSet(mine.mask.size()), .quota = 0};
  std::map<std::uint64_t, double> quotas;  // of each control group once, however many ranks it limits
  NodeCores node{0, 0};
  for (const Share& share : gather<Share>(world, std::span(&mine, 1))) {
    if (share.node != mine.node) continue;
    node.threads += share.threads;
    quotas[share.quota_group] = share.quota;
    std::transform(share.mask.begin(), share.mask.end(), together.processors.begin(), together.processors.begin(),
                   std::bit_or<>());
  }
  for (const auto& [group, quota] : quotas) together.quota += quota;
  node.cores = together.cores();
  return node;
}

}  // namespace distattn::cli

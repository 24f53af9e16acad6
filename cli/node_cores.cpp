#include "node_cores.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "distattn/host_resources.hpp"
#include "gather.hpp"

namespace distattn::cli {
namespace {

/// As HostResources has them, for machines of any size.
using CoreMask = std::array<std::uint64_t, 256>;

struct Share {
  Rank node = 0;  ///< its first rank
  int threads = 0;
  ControlGroup tightest;  ///< the one with the least quota
  CoreMask mask{};
};

Share share_of(const World& world, int threads) {
  const HostResources host = host_resources();
  const auto tightest = std::min_element(host.groups.begin(), host.groups.end(),
                                         [](const auto& a, const auto& b) { return a.quota < b.quota; });
  Share mine{
      world.first() - world.local_rank(), threads, tightest == host.groups.end() ? ControlGroup{} : *tightest, {}};
  std::copy_n(host.processors.begin(), std::min(host.processors.size(), mine.mask.size()), mine.mask.begin());
  return mine;
}

}  // namespace

NodeCores node_cores(World& world, int threads) {
  if (world.in_process()) return {usable_cores(), world.size() * threads};
  const Share mine = share_of(world, threads);
  HostResources together;
  together.processors.resize(mine.mask.size());
  together.quota = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, double> quotas;  // of each group once, however many ranks it limits
  NodeCores node{0, 0};
  for (const Share& share : gather<Share>(world, std::span(&mine, 1))) {
    if (share.node != mine.node) continue;
    node.threads += share.threads;
    quotas[{share.tightest.device, share.tightest.inode}] = share.tightest.quota;
    std::transform(share.mask.begin(), share.mask.end(), together.processors.begin(), together.processors.begin(),
                   std::bit_or<>());
  }
  for (const auto& [group, quota] : quotas) together.quota += quota;
  node.cores = together.cores();
  return node;
}

}  // namespace distattn::cli

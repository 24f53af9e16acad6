#include "cli/run/head_results.hpp"

#include <cmath>

#include "cli/run/all_gather.hpp"
#include "distattn/convert.hpp"

namespace distattn::cli {
namespace {

/// Shares, rank after rank, put together number by number.
template <class Combine>
std::vector<double> combined(World& world, const std::vector<RankTensors>& here,
                             ConstTensorView (RankTensors::*share_of)() const, double none, Combine combine) {
  std::vector<double> shares;
  for (const RankTensors& local : here) {
    const ConstTensorView share = (local.*share_of)();
    for (std::int64_t b = 0; b < share.batch(); ++b) {
      for (std::int64_t head = 0; head < share.heads(); ++head) {
        auto* const into = reinterpret_cast<std::byte*>(&shares.emplace_back());
        convert(share.row(b, 0, head), share.dtype, into, DType::fp64, 1);
      }
    }
  }
  std::vector<double> all(shares.size() / here.size(), none);
  const std::vector<double> of_ranks = world.in_process() ? shares : all_gather<double>(world, shares);
  for (std::size_t i = 0; i < of_ranks.size(); ++i) all[i % all.size()] = combine(all[i % all.size()], of_ranks[i]);
  return all;
}

}  // namespace

std::vector<double> sink_gradients(World& world, const std::vector<RankTensors>& here) {
  return combined(world, here, &RankTensors::dsink_logits, 0, [](double sum, double share) { return sum + share; });
}

std::vector<double> max_logits(World& world, const std::vector<RankTensors>& here) {
  const auto larger = [](double a, double b) { return b > a || std::isnan(b) ? b : a; };
  return combined(world, here, &RankTensors::max_logit, -INFINITY, larger);
}

}  // namespace distattn::cli

#pragma once
/// Results that are a number for each head, of which every rank has a share.

#include <vector>

#include "cli/run/rank_tensors.hpp"
#include "distattn/launch.hpp"

namespace distattn::cli {

/// All of these are collectives; `here` are the ranks of this process.

/// The gradient of each head's sink logit: the shares of all ranks, added in the order of ranks.
std::vector<double> sink_gradients(World& world, const std::vector<RankTensors>& here);
/// The largest score of each head of each sequence, [batch][heads]: the largest of the shares of all ranks.
std::vector<double> max_logits(World& world, const std::vector<RankTensors>& here);

}  // namespace distattn::cli

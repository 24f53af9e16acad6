#pragma once
/// What other systems send, as formulas. They shard a whole layer, which a table of attention tiles cannot express.

#include <string>
#include <vector>

#include "distattn/problem.hpp"

namespace distattn {

/// Elements that one worker sends for one layer, in units of tokens × hidden size; hidden = heads × head_dim.
struct Baseline {
  std::string name;
  double forward = 0, backward = 0;
  std::string note;
};

/// Megatron-LM's tensor parallelism with and without recomputation, Ring Self-Attention, DistFlashAttn, BurstAttention
/// and Ulysses by their papers' own counts, for `ranks` workers.
std::vector<Baseline> baselines(const Problem& problem, int ranks);

/// Heads that head parallelism computes when it pads `heads` to a multiple of `ranks` (DistFlashAttn §4.3).
constexpr int padded_heads(int heads, int ranks) { return (heads + ranks - 1) / ranks * ranks; }
/// Work that padding adds, as a share of the work of `heads`: 15 added to 33 heads are 0.4545 (DistFlashAttn §4.3).
constexpr double padded_share(int heads, int ranks) {
  return static_cast<double>(padded_heads(heads, ranks) - heads) / heads;
}

}  // namespace distattn

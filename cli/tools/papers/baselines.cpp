#include "cli/tools/baselines.hpp"

#include <fmt/format.h>

namespace distattn {

std::vector<Baseline> baselines(const Problem& problem, int ranks) {
  // Table 1 of the paper: 2BZN next to 3BZNd. Its §3.2 divides them by the workers, as if they did not travel with Q.
  const double statistics = 2.0 / problem.head_dim;
  const int padded = padded_heads(problem.heads, ranks);
  const std::string padding = padded == problem.heads
                                  ? ""
                                  : fmt::format(", {} heads padded to {}: {:.1f} % more work than they take",
                                                problem.heads, padded, 100 * padded_share(problem.heads, ranks));
  return {
      {"megatron", 4, 6, "tensor parallelism of the whole layer: six all-gathers, four reduce-scatters" + padding},
      {"megatron-recompute", 8, 6, "the same, its forward run again by checkpointing" + padding},
      {"tensor-parallel", 4, 4, "as BurstAttention counts Megatron-LM" + padding},
      {"ring-self-attention", 2, 6, "scores are kept: memory grows with the square of the sequence"},
      {"distflashattn", 1, 2, "causal, by its own count; ours: balanced"},
      {"burstattention", 2, 3 + statistics, "by its own count; ours: ring/burst with a full mask"},
      {"ulysses", 4.0 / ranks, 4.0 / ranks, "all-to-alls of q, k, v, o and their gradients" + padding},
  };
}

}  // namespace distattn

#include "cli/validate/validate_cases.hpp"

#include <fmt/format.h>

#include <array>

#include "distattn/tree.hpp"

namespace distattn::cli {
namespace {

struct Sizes {
  std::int64_t batch, seq_q, seq_kv;
  int heads, kv_heads, head_dim;
};

Problem problem_of(const Sizes& sizes, Mask mask, DType dtype = DType::fp32, DType wire = DType::fp32) {
  Problem problem;
  problem.batch = sizes.batch;
  problem.seq_q = sizes.seq_q;
  problem.seq_kv = sizes.seq_kv;
  problem.heads = sizes.heads;
  problem.kv_heads = sizes.kv_heads;
  problem.head_dim = problem.value_dim = sizes.head_dim;
  problem.dtype = dtype;
  problem.wire = wire;
  problem.mask = std::move(mask);
  check(problem);
  return problem;
}

Mask windowed(Mask mask, std::int64_t left, std::int64_t right, std::int64_t sinks) {
  mask.left = left;
  mask.right = right;
  mask.sinks = sinks;
  mask.name += fmt::format(" window {},{}", left, right);
  if (sinks > 0) mask.name += fmt::format(" global-keys {}", sinks);
  return mask;
}

Mask packed(Mask mask, std::vector<std::int64_t> ends) {
  mask.name += fmt::format(" documents {}", ends.size() - 1);
  mask.documents = std::move(ends);
  return mask;
}

/// Two bands that leave queries 20 … 29 without any key.
Mask holed() {
  Mask mask = band_mask({{0, 20, 0, 20, 0, unbounded}, {30, 60, 10, 45, -5, 17}});
  mask.name = "bands 2";
  return mask;
}

/// A prompt with three continuations, one of which goes on after the others.
Mask branches() {
  const std::array nodes = {TreeNode{19, -1}, TreeNode{13, 0}, TreeNode{5, 1},
                            TreeNode{1, 0},   TreeNode{17, 0}, TreeNode{11, 1}};
  return tree_mask(nodes);
}

}  // namespace

std::vector<Problem> usual_problems() {
  Problem long_values = problem_of({1, 45, 45, 4, 2, 24}, causal_mask());
  long_values.value_dim = 16;
  Problem latent = problem_of({1, 49, 49, 5, 1, 40}, windowed(causal_mask(), 21, -1, 1));
  latent.value_dim = 32;
  latent.shared_kv = true;
  Problem scaled = problem_of({1, 48, 48, 3, 3, 8}, full_mask());
  scaled.scores.scale = 0.7;
  Problem capped = problem_of({1, 53, 53, 6, 3, 16}, windowed(causal_mask(), 20, -1, 2));
  capped.scores.softcap = 1.5;
  Problem sinks = problem_of({2, 59, 59, 6, 2, 16}, windowed(causal_mask(), 17, -1, 0));
  sinks.scores.sink_logits = true;
  Problem biased = problem_of({1, 55, 67, 6, 2, 16}, causal_mask());
  biased.alibi_slopes = standard_alibi_slopes(6);
  biased.scores.max_logit = true;
  Problem dropped = problem_of({2, 47, 47, 6, 3, 16}, causal_mask());
  dropped.scores.dropout = 0.2;
  Problem both = problem_of({1, 61, 61, 4, 1, 24}, packed(causal_mask(), {0, 23, 24, 61}), DType::bf16);
  both.scores.softcap = 2;
  both.scores.sink_logits = true;
  return {problem_of({1, 64, 64, 8, 8, 16}, causal_mask()),
          problem_of({1, 61, 61, 6, 2, 16}, full_mask()),
          problem_of({2, 37, 53, 5, 5, 24}, causal_mask()),
          problem_of({1, 40, 23, 7, 7, 8}, causal_mask()),
          problem_of({1, 5, 5, 8, 2, 8}, causal_mask()),
          problem_of({1, 97, 97, 12, 4, 8}, windowed(causal_mask(), 9, -1, 3)),
          problem_of({1, 50, 50, 8, 1, 8}, windowed(full_mask(), 5, 3, 0)),
          problem_of({1, 61, 61, 9, 3, 16}, packed(causal_mask(), {0, 0, 11, 12, 37, 61})),
          problem_of({1, 58, 58, 4, 4, 32}, packed(full_mask(), {0, 30, 58})),
          problem_of({1, 70, 70, 10, 5, 8}, prefix_mask(70, 20)),
          problem_of({1, 64, 64, 4, 4, 40}, block_causal_mask(64, 12)),
          problem_of({1, 60, 60, 3, 1, 8}, holed()),
          problem_of({1, 66, 66, 6, 3, 8}, branches()),
          problem_of({1, 72, 72, 8, 4, 16}, causal_mask(), DType::bf16),
          problem_of({1, 56, 56, 8, 8, 16}, full_mask(), DType::fp16, DType::bf16),
          problem_of({1, 41, 41, 4, 2, 8}, causal_mask(), DType::fp64),
          long_values,
          latent,
          scaled,
          capped,
          sinks,
          biased,
          dropped,
          both};
}

}  // namespace distattn::cli

#pragma once
/// Lists of shapes, element types and masks: every combination of their values is a problem.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/options/problem_options.hpp"
#include "distattn/layers.hpp"

namespace distattn::cli {

struct ProblemLists {
  ProblemOptions common;  ///< what is the same for all: windows, documents, scores, seed
  std::vector<std::int64_t> seq, seq_kv, batch, heads, kv_heads, head_dim, value_dim;
  std::vector<DType> dtype, wire;
  std::vector<std::string> mask;
  std::vector<WeightedMask> masks_together;  ///< on one layout; empty: each of `mask` by itself

  /// Nothing is given, not even for all; a seed says nothing about problems.
  bool is_empty() const;
  /// Options and how many values each has.
  std::vector<std::pair<const char*, std::size_t>> counts() const;
};

/// The same options as for one problem, with lists where several values make sense.
void add_problem_options(App& app, ProblemLists& lists);

/// "causal 1x61/61 6/4x16 fp32", as of a problem; ? where a size is open.
std::string describe(const ProblemOptions& options);
/// "causal 2x37/53 5/5x24 fp32": mask, batch x queries/keys, heads/kv-heads x head-dim, type.
std::string describe(const Problem& problem);

/// Every combination; sequences change fastest, then the options from the last to the first, masks slowest. Throws
/// Error(usage) where they are more than ten thousand.
std::vector<ProblemOptions> combinations(const ProblemLists& lists);

/// The only combination but for --seq, which stays open. Throws Error(usage) where another option has several values,
/// saying `why` that is too many.
ProblemOptions only_combination(ProblemLists lists, const std::string& why);

/// What each mask of `masks_together` makes of a problem; without any, the problem alone.
std::vector<LayerKind> kinds_of(const Problem& problem, const ProblemLists& lists);
/// " masks causal*1 window:128*3", for ranks to compare; empty: none.
std::string text_of(const std::vector<WeightedMask>& masks);

struct Problems {
  std::vector<Problem> all;
  std::vector<std::string> skipped;  ///< combinations that are no problem, and why
};

/// The combinations that are problems. Throws Error(usage) where none is, with the reasons.
Problems problems_of(const std::vector<ProblemOptions>& combinations);

}  // namespace distattn::cli

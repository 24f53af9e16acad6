#pragma once
/// Compares what ranks computed with the float64 oracle.

#include <array>
#include <string>
#include <vector>

#include "cli/rows/run.hpp"
#include "cli/run/inputs.hpp"
#include "cli/run/rank_tensors.hpp"
#include "cli/tools/judge.hpp"
#include "distattn/attention.hpp"
#include "distattn/launch.hpp"

namespace distattn::cli {

/// Of one result: relative L2 over the whole tensor (lse: largest absolute), and the part that is farthest off.
struct ResultError {
  double error = 0;
  WorstPart worst;
  std::int64_t wrong = 0;  ///< elements
  double magnitude = 0;    ///< of the result's largest number: logarithms of large scores round by as much more
  std::string where;       ///< "dv of key head 3, document 17, tokens 340 to 359"
  bool overflows = false;  ///< terms as large as the result's largest number may overflow the sums that make it
};

/// Errors of gradients are 0 without backward.
struct Errors {
  std::array<ResultError, all_results.size()> results;
  double tolerance = 0;  ///< what errors of whole tensors may be
  bool backward = false, shared_kv = false;
  Scores scores{};

  bool has(Result result) const {
    if (result == Result::dsink_logits && !scores.sink_logits) return false;
    if (result == Result::max_logit && !scores.max_logit) return false;
    if (result == Result::dv && shared_kv) return false;
    return backward || pass_of(result) == Pass::forward;
  }
  double of(Result result) const { return results[index(result)].error; }
  /// What tolerance bounds: every error, that of lse as a share of its magnitude where that is above 1.
  double largest() const { return std::max(largest(Pass::forward), largest(Pass::backward)); }
  double largest(Pass pass) const;
  /// No row, and no head and document, is farther off than rounding explains.
  bool within_tolerance() const { return within_tolerance(Pass::forward) && within_tolerance(Pass::backward); }
  bool within_tolerance(Pass pass) const;
  std::int64_t wrong(Pass pass) const;
  /// The worst part of those passes.
  const ResultError& worst() const;
  const ResultError& worst(Pass pass) const;
};

/// Goes key head by key head, so that the oracle holds one head group's tensors at a time. Processes share the oracle's
/// work, and every process checks the rows of its ranks. Collective.
Errors check_results(World& world, const AttentionPlan& plan, const Inputs& inputs,
                     const std::vector<RankTensors>& here, Passes passes);

/// "dv of head 3: an error of 1.00e+00 is beyond the tolerance of 3.1e-06", where something is wrong.
std::string text_of(const ResultError& wrong);

ErrorRow row_of(const Errors& errors);
/// One for each result that there is.
std::vector<ErrorPart> parts_of(const Errors& errors);

}  // namespace distattn::cli

#pragma once
/// Quantities that a paper's data file asks for.

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "distattn/machine.hpp"

namespace distattn {

/// Computes a quantity:
///   4.5                                              a number
///   {"ratio": [a, b]}  {"sum": [a, b]}  {"overhead": [a, b]}   a/b, a+b, a/b - 1
///   {"baseline" | "transfer": name, …}               elements that a rank of baselines() sends, in units of
///                                                    tokens × hidden size; seconds they take on a machine's slowest
///                                                    link
///   {"padding": [heads, ranks]}                      share of work that padded heads waste
///   {"idle" | "ideal_speedup": schedule, …}          share of rank-time on an ideal network; ranks · (1 - idle)
///   {"volume" | "busiest": schedule, …}              elements that a rank sends, in units of tokens × hidden size, on
///                                                    the mean or at the busiest rank
///   {"seconds": schedule, "machine": name, …}        predicted
/// …: ranks, tokens, heads, head_dim; where they are not the usual kv_heads (heads), batch (1), mask (causal or full),
/// pass (forward, backward, both), mode (the schedule's own), and for seconds routed (false). Elements are
/// 16-bit, on the wire too, as in the papers.
class PaperQuantities {
 public:
  /// `machines` are the paper's own, beside those that are built in.
  PaperQuantities(std::map<std::string, Machine> machines, std::string origin);
  /// Throws Error(usage) naming what it does not understand.
  double compute(const nlohmann::json& quantity) const;

 private:
  double of_baseline(const std::string& kind, const nlohmann::json& quantity) const;
  double of_schedule(const std::string& kind, const nlohmann::json& quantity) const;
  Machine machine(const std::string& name) const;

  std::map<std::string, Machine> machines_;
  std::string origin_;
};

}  // namespace distattn

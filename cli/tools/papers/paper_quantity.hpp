#pragma once
/// Quantities of attention alone that a paper's data file asks for.

#include <string>

#include "cli/tools/papers.hpp"

namespace distattn {

/// Computes a quantity, given as JSON:
///   {"baseline" | "transfer": name, …}               elements that a rank of baselines() sends, in units of
///                                                    tokens × hidden size; seconds of the collectives that send them
///                                                    on a machine (ring_seconds)
///   {"padding": [heads, ranks]}                      share of work that padded heads add
///   {"idle" | "ideal_speedup": schedule, …}          share of rank-time on an ideal network; ranks · (1 - idle)
///   {"volume" | "busiest": schedule, …}              elements that a rank sends, in units of tokens × hidden size, on
///                                                    the mean or at the busiest rank
///   {"far": schedule, "node_size": 4, …}             the mean of those that go between nodes, routed
///   {"buffers": schedule, …}                         bytes of the fullest rank's buffers in those of its own q, k, v
///                                                    and o
///   {"seconds": schedule, "machine": name, …}        predicted
/// …: ranks, tokens, heads, head_dim; where they are not the usual kv_heads (heads), batch (1), mask (causal or full),
/// pass (forward, backward, both), mode (the schedule's own), and for seconds routed (false), network (true; false:
/// links that take no time). Elements are 16-bit, on the wire too, as in the papers. Throws Error(usage) naming what it
/// does not understand.
PaperValue paper_quantity(const std::string& quantity, const std::string& origin);

}  // namespace distattn

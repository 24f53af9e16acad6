#include "core/src/placer/costs.hpp"

#include <algorithm>

namespace distattn {
namespace {

TokenBytes bytes_of(const Problem& problem, Pass pass) {
  const double sequences = static_cast<double>(problem.batch);
  const double input = sequences * static_cast<double>(size_of(problem.dtype));
  const double wire = sequences * static_cast<double>(size_of(problem.wire_type()));
  const double statistic = 4 * sequences * problem.heads;
  const double keys = static_cast<double>(problem.kv_heads) * problem.key_value_dim();
  TokenBytes bytes;
  bytes.query = problem.heads * problem.head_dim * input;
  bytes.key_value = keys * input;
  if (pass == Pass::forward) {
    bytes.output = problem.heads * problem.value_dim * wire + statistic;
  } else {
    bytes.query += problem.heads * problem.value_dim * input + 2 * statistic;  // dO, LSE and delta
    bytes.output = problem.heads * problem.head_dim * wire;
    bytes.dkey_value = keys * wire;
  }
  return bytes;
}

int node_size_of(const Machine& machine, int ranks) {
  return machine.nodes > 1 ? std::min(machine.ranks_per_node, ranks) : ranks;
}

}  // namespace

PassCosts::PassCosts(const Problem& problem, Pass pass, const Machine& machine, int threads)
    : launches_(problem, pass, machine, 1),
      heads_(static_cast<double>(problem.batch) * problem.heads),
      threads_(machine.cores > 0 ? threads : 1),
      bytes_(bytes_of(problem, pass)) {}

double PassCosts::tile(double pairs, double queries, double keys, double times) const {
  if (pairs <= 0) return 0;
  const Coverage coverage = pairs >= queries * keys ? Coverage::full : Coverage::partial;
  const double area = coverage == Coverage::full ? pairs : 2 * pairs;
  const double side = 2 * area / (queries + keys) * (launches_.rates_by() == RatesBy::launch ? times : 1);
  return heads_ * launches_.of_tiles(1, pairs, coverage, std::max(1.0, side)) / threads_;
}

PlacementCosts::PlacementCosts(const Problem& problem, Passes which, const Machine& machine, int rank_count,
                               int threads)
    : ranks(rank_count),
      node_size(node_size_of(machine, rank_count)),
      kv_heads(problem.kv_heads),
      near(machine.near),
      far(machine.nodes > 1 ? machine.far : machine.near),
      far_shared(machine.far_owner == LinkOwner::node && machine.nodes > 1),
      memory_bytes_per_s(machine.memory_bytes_per_s * (machine.cores > 0 ? threads : 1)) {
  for (Rank rank = 0; rank < ranks; ++rank) speeds.push_back(machine.speed_of(rank));
  mean_speed = machine.speed_of_all(ranks) / ranks;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::backward && which == Passes::forward) break;
    const TokenBytes& of_pass = passes.emplace_back(problem, pass, machine, threads).bytes();
    bytes.query += of_pass.query;
    bytes.key_value += of_pass.key_value;
    bytes.output += of_pass.output;
    bytes.dkey_value += of_pass.dkey_value;
  }
}

double PlacementCosts::tile(double pairs, double queries, double keys, double times) const {
  double seconds = 0;
  for (const PassCosts& pass : passes) seconds += pass.tile(pairs, queries, keys, times);
  return seconds;
}

}  // namespace distattn

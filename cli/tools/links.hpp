#pragma once
/// Time that collectives of a whole group take on a machine's links.

#include <algorithm>

#include "distattn/machine.hpp"

namespace distattn {

/// Whether `ranks` ranks fit one node.
inline bool within_node(int ranks, const Machine& machine) { return machine.node_of(ranks - 1) == 0; }

/// One direction of a node's connection to the others.
inline double node_bytes_per_s(const Machine& machine) {
  return machine.far.bytes_per_s * (machine.far_owner == LinkOwner::rank ? machine.ranks_per_node : 1);
}

/// All-gathers, reduce-scatters and all-reduces as rings: `bytes` pass through every rank and once over every node's
/// connection.
inline double ring_seconds(double bytes, int ranks, const Machine& machine) {
  if (ranks == 1) return 0;
  if (within_node(ranks, machine)) return bytes / machine.near.bytes_per_s;
  return bytes / std::min(machine.near.bytes_per_s, node_bytes_per_s(machine));
}

/// All-to-alls: every rank sends `bytes` in all, in equal parts to the other ranks.
inline double exchange_seconds(double bytes, int ranks, const Machine& machine) {
  if (ranks == 1) return 0;
  if (within_node(ranks, machine)) return bytes / machine.near.bytes_per_s;
  const double here = machine.ranks_per_node, others = ranks - 1;
  const double near_s = bytes * (here - 1) / others / machine.near.bytes_per_s;
  return std::max(near_s, bytes * here * (ranks - here) / others / node_bytes_per_s(machine));
}

}  // namespace distattn

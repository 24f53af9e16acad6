#pragma once
/// A whole attention in float64, unsharded: what every other result is compared with.

#include <span>
#include <vector>

#include "distattn/tensor.hpp"
#include "kernels/arguments.hpp"
#include "kernels/team.hpp"

namespace distattn::kernels::reference {

/// q, k, v (and d_o for gradients) in any element types, heads a multiple of k's. Queries and keys stand at the given
/// positions and see each other through `bands`.
struct WholeAttention {
  ConstTensorView q, k, v, d_o;
  Run queries, keys;
  std::span<const Band> bands;
  double scale = 1;
};

/// Dense [batch, sequence, heads, dim] as the inputs; lse [batch, heads, sequence]. Gradients are empty without d_o.
struct Exact {
  std::vector<double> o, lse, dq, dk, dv;
};

/// Computes with all threads of `team`. Memory: inputs and results once more in float64.
Exact compute_exactly(const WholeAttention& attention, Team& team);

}  // namespace distattn::kernels::reference

#pragma once
/// What the results of some inputs should be, in float64.

#include <span>

#include "distattn/choose.hpp"
#include "distattn/oracle.hpp"
#include "inputs.hpp"

namespace distattn::cli {

/// Squares, summed over a head group, of what cancels in its gradients.
struct Cancelling {
  double dq = 0, dk = 0;

  void add(const Cancelling& other) {
    dq += other.dq;
    dk += other.dk;
  }
};

/// Of one sequence and key head, and the query heads that share it.
struct Expected {
  ExactResult exact;
  Cancelling cancelling;
};

/// Computes with `threads` threads; `problem` is the whole one.
Expected expected_of(const Problem& problem, const Inputs& inputs, std::int64_t b, std::int64_t kv_head, Passes passes,
                     int threads);

/// What tolerance() wants to know of the inputs. Random ones have unit variance; of others the head with the largest
/// scores counts.
double input_scale(const Inputs& inputs);

double root_mean_square(std::span<const double> values);  ///< of those that are finite

}  // namespace distattn::cli

#pragma once
/// What a training step costs, measured or predicted.

#include <cstdint>

namespace distattn::step {

/// Seconds and memory are those of the slowest and the fullest rank; calls are one rank's; bytes are those that all
/// ranks together hand to others, but for bytes_sent_max.
struct StepCosts {
  double seconds = 0, forward_s = 0, backward_s = 0, attention_s = 0, gradient_s = 0, optimizer_s = 0;
  std::int64_t attention_forwards = 0, attention_backwards = 0;
  std::int64_t forward_bytes = 0, backward_bytes = 0, gradient_bytes = 0;
  std::int64_t bytes_sent_max = 0;         ///< of the busiest rank, all of the above
  std::int64_t peak_activation_bytes = 0;  ///< kept from forward to backward
  std::int64_t peak_offloaded_bytes = 0;   ///< kept in host memory instead
  std::int64_t peak_memory_bytes = 0;      ///< all activations, those in use at the moment too
};

/// One step of a training run.
struct StepReport : StepCosts {
  int step = 0;  ///< from 0
  double loss = 0;
  double grad_norm = 0;  ///< of all gradients
};

/// A step as it would be on a described machine.
struct StepPrediction : StepCosts {
  std::int64_t state_bytes = 0;   ///< weights, gradients and moments of a rank
  std::int64_t memory_bytes = 0;  ///< all of a rank's: activations, attention buffers, state
};

}  // namespace distattn::step

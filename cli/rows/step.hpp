#pragma once
/// The rows of `step` and of `plan --step`.

#include <string>

#include "cli/step/step_costs.hpp"
#include "core/src/fields.hpp"

namespace distattn::cli {

inline void cost_fields(const step::StepCosts& costs, RowFields& field) {
  field({"seconds", units::seconds, "Time of the whole step."}, costs.seconds);
  field({"forward_s", units::seconds, "Time of the forward pass."}, costs.forward_s);
  field({"backward_s", units::seconds, "Time of the backward pass."}, costs.backward_s);
  field({"attention_s", units::seconds, "Time of the attention, which is part of both passes."}, costs.attention_s);
  field({"gradient_s", units::seconds, "Time in which gradients are summed over ranks."}, costs.gradient_s);
  field({"optimizer_s", units::seconds, "Time of the optimizer."}, costs.optimizer_s);
  field({"attention_forwards", units::none,
         "Forward passes of the attention: two a layer if the policy computes it again."},
        costs.attention_forwards);
  field({"attention_backwards", units::none, "Backward passes of the attention."}, costs.attention_backwards);
  field({"forward_bytes", units::bytes, "Bytes that all ranks send in forward passes of the attention."},
        costs.forward_bytes);
  field({"backward_bytes", units::bytes, "Bytes that all ranks send in backward passes of the attention."},
        costs.backward_bytes);
  field({"gradient_bytes", units::bytes, "Bytes that all ranks send to sum the gradients."}, costs.gradient_bytes);
  field({"bytes_sent_max", units::bytes, "Bytes that the busiest rank sends, all of the above."}, costs.bytes_sent_max);
  field(
      {"peak_activation_bytes", units::bytes, "Most bytes of activations that a rank keeps from forward to backward."},
      costs.peak_activation_bytes);
  field({"peak_offloaded_bytes", units::bytes, "Most bytes of activations that a rank keeps in host memory instead."},
        costs.peak_offloaded_bytes);
  field({"peak_memory_bytes", units::bytes, "Most bytes of all activations of a rank, those in use included."},
        costs.peak_memory_bytes);
}

/// A cell of tables: calls of the attention, "4+2".
inline Field calls_cell(const step::StepCosts& costs) {
  return {
      {"calls", units::none, ""}, nullptr, fmt::format("{}+{}", costs.attention_forwards, costs.attention_backwards)};
}

/// One training step.
struct StepRow {
  step::StepReport report;
  std::optional<double> gradient_error;  ///< with --verify
  std::string worst_parameter;           ///< where it is
};

inline void fields_of(const StepRow& row, RowFields& field) {
  field({"step", units::none, "Number of the step, from 0."}, row.report.step);
  field({"loss", units::nats, "The loss."}, row.report.loss);
  field({"grad_norm", units::norm, "Norm of all gradients."}, row.report.grad_norm);
  cost_fields(row.report, field);
  field({"gradient_error", units::error,
         "Largest relative error of a parameter's gradient against float64, null without --verify."},
        row.gradient_error);
}

/// A predicted training step.
struct StepPlanRow {
  std::string model, machine, schedule, policy, state;
  int ranks = 1;
  std::int64_t sequence = 0;
  step::StepPrediction step;
  std::optional<std::int64_t> largest_sequence;
};

inline void fields_of(const StepPlanRow& row, RowFields& field) {
  field({"model", units::none, "The model."}, row.model);
  field({"machine", units::none, "The machine that it is predicted on."}, row.machine);
  field({"schedule", units::none, "Schedule of the attention."}, row.schedule);
  field({"checkpoint", units::none, "The policy: what is kept from forward to backward."}, row.policy);
  field({"state", units::none, "Where weights and moments are: sharded over ranks, or replicated."}, row.state);
  field({"ranks", units::none, "Number of ranks."}, row.ranks);
  field({"seq", units::tokens, "Tokens of the sequence."}, row.sequence);
  cost_fields(row.step, field);
  field({"state_bytes", units::bytes, "Bytes of weights, gradients and moments of a rank."}, row.step.state_bytes);
  field({"memory_bytes", units::bytes, "Bytes of all memory of a rank."}, row.step.memory_bytes);
  field({"largest_seq", units::tokens,
         "Largest sequence that fits a rank's memory with equal shards, null if the mask is for one length (a file, "
         "--cu-seqlens)."},
        row.largest_sequence);
}

}  // namespace distattn::cli

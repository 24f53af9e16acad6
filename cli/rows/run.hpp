#pragma once
/// The row of `run`.

#include <string>

#include "cli/rows/problem.hpp"
#include "distattn/registry.hpp"

namespace distattn::cli {

/// Errors against float64; of gradients not known without a backward pass.
struct ErrorRow {
  double o = 0, lse = 0, dq = unknown_number, dk = unknown_number, dv = unknown_number, dsink_logits = unknown_number,
         max_logit = unknown_number;
  double tolerance = 0;
  bool has_sink_logits = true, has_max_logit = true;  ///< whether they were asked for
};

inline void fields_of(const ErrorRow& row, RowFields& field) {
  field({"o", units::error, "Relative error of the output, in the L2 norm."}, row.o);
  field({"lse", units::error, "Largest absolute error of the log-sum-exp."}, row.lse);
  field({"dq", units::error, "Relative error of the queries' gradient, null without a backward pass."}, row.dq);
  field({"dk", units::error, "Relative error of the keys' gradient, null without a backward pass."}, row.dk);
  field({"dv", units::error, "Relative error of the values' gradient, null without a backward pass."}, row.dv);
  if (row.has_sink_logits)
    field({"dsink_logits", units::error,
           "Only with --sink-logits: relative error of their gradient, null without a backward pass."},
          row.dsink_logits);
  if (row.has_max_logit)
    field({"max_logit", units::error, "Only with --max-logit: largest absolute error of the largest scores."},
          row.max_logit);
  field({"tolerance", units::error,
         "What these errors may be if every part is right. If more than half of the terms cancels, errors are "
         "relative to half of the terms."},
        row.tolerance);
}

/// The part of one result that is farthest from what it may be.
struct ErrorPart {
  std::string result, where;
  std::int64_t batch = 0, head = 0;
  std::optional<std::int64_t> document, token;
  double error = 0, tolerance = 0;
  bool ok = true;
};

inline void fields_of(const ErrorPart& row, RowFields& field) {
  field({"result", units::none, "The result: o, lse, dq, dk, dv, dsink_logits or max_logit."}, row.result);
  field({"where", units::none, "The part, in words."}, row.where);
  field({"batch", units::none, "Sequence of the batch, from 0."}, row.batch);
  field({"head", units::none, "Query head, or key head of dk and dv, from 0."}, row.head);
  field({"document", units::none,
         "Document, from 0; the group of bands if there are no documents; null for tokens that see nothing."},
        row.document);
  field({"token", units::none, "Token, null if the part is all tokens of the document."}, row.token);
  field({"error", units::error, "Error of the part."}, row.error);
  field({"tolerance", units::error, "What the error of the part may be."}, row.tolerance);
  field({"ok", units::none, "Whether the error is within that."}, row.ok);
}

/// One pass of a run: what its proof counted, and how long it took.
struct PassRow {
  Mode mode = Mode::overlapped;
  int steps = 0;
  std::int64_t messages = 0, bytes_sent_max = 0, peak_remote_bytes = 0, memory_bytes = 0;
  double bytes_sent_mean = 0, first_s = 0, median_s = 0, gflops = unknown_number, predicted_s = unknown_number;
};

inline void fields_of(const PassRow& row, RowFields& field) {
  field({"mode", units::none, "How messages and computing overlap: overlapped, serial or gathered."}, row.mode);
  field({"steps", units::none, "Number of steps."}, row.steps);
  field({"messages", units::none, "Messages of all ranks."}, row.messages);
  field({"bytes_sent_max", units::bytes, "Bytes that the busiest rank sends."}, row.bytes_sent_max);
  field({"bytes_sent_mean", units::bytes, "Bytes that a rank sends on average."}, row.bytes_sent_mean);
  field({"peak_remote_bytes", units::bytes, "Most bytes of a rank's buffers for values of other ranks."},
        row.peak_remote_bytes);
  field({"memory_bytes", units::bytes, "Most bytes of all buffers of a rank."}, row.memory_bytes);
  field({"first_s", units::seconds, "Time of the first run, warm-up or not."}, row.first_s);
  field({"median_s", units::seconds, "Median time of the runs that -n asks for."}, row.median_s);
  field({"gflops", units::gflops, "Rate of all ranks together, at the median time."}, row.gflops);
  field({"predicted_s", units::seconds,
         "Time predicted on the machine of --machine, null if it states no rates of this type and backend."},
        row.predicted_s);
}

/// What was run, and what came of it.
struct RunRow {
  std::string schedule;
  int ranks = 1;
  std::string backend;
  DeviceOptions device;  ///< of each rank
  std::string transport, bootstrap;
  Problem problem;
  PassRow figures;  ///< of the forward pass; in a row of `bench` of the row's pass
  std::variant<bool, PassRow> backward = false;
  std::optional<ErrorRow> error;
  std::optional<std::vector<ErrorPart>> error_parts;
};

/// How a device was to compute.
inline void device_fields(const DeviceOptions& device, RowFields& field) {
  const std::string& provider = device.gpu.provider;
  field({"provider", units::none, "Whose kernels computed, null without --provider."},
        provider.empty() ? std::nullopt : std::optional(provider));
  field({"deterministic", units::none, "Whether --deterministic asked for gradients of the same bits in every run."},
        device.gradient_order == GradientOrder::fixed);
  field({"graphs", units::none, "Whether --graphs asked for steps that start as one CUDA graph."},
        device.gpu.step_graphs == StepGraphs::always);
}

inline void fields_of(const RunRow& row, RowFields& field) {
  field({"schedule", units::none, "The schedule; F/B if the passes differ."}, row.schedule);
  field({"ranks", units::none, "Number of ranks."}, row.ranks);
  field({"threads", units::none, "Threads of a rank."}, row.device.threads);
  field({"backend", units::none, "What computed."}, row.backend);
  device_fields(row.device, field);
  field({"transport", units::none, "What carried messages."}, row.transport);
  field({"bootstrap", units::none, "How ranks found each other."}, row.bootstrap);
  type_fields(row.problem, field);
  field({"seq", units::tokens, "Queries of a sequence."}, row.problem.seq_q);
  size_fields(row.problem, field);
  fields_of(row.figures, field);
  field({"backward", units::none, "The same of the backward pass, false without --backward."}, row.backward);
  field({"error", units::none, "Errors against float64, null without --check."}, row.error);
  field({"error_parts", units::none, "For each result the part that is farthest off, null without --check."},
        row.error_parts);
}

}  // namespace distattn::cli

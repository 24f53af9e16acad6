#pragma once
/// The rows of `validate`.

#include <string>

#include "core/src/fields.hpp"
#include "distattn/types.hpp"

namespace distattn::cli {

/// One pass of a case on a backend. Without a failure it ran, and `error` is known.
struct ValidationRow {
  std::string schedule;
  Pass pass = Pass::forward;
  std::optional<Mode> mode;
  int ranks = 1;
  std::string backend, problem;
  bool proved = false;
  std::optional<int> steps;
  std::optional<std::int64_t> bytes_sent_max;
  double error = unknown_number, tolerance = 0;
  std::optional<std::string> failure, wrong;

  bool ok() const { return !failure && !wrong; }
};

inline void fields_of(const ValidationRow& row, RowFields& field) {
  field({"schedule", units::none, "The schedule; F/B if the passes differ."}, row.schedule);
  field({"pass", units::none, "The pass: forward or backward."}, row.pass);
  field({"mode", units::none, "How messages and computing overlap, null if the proof failed."}, row.mode);
  field({"ranks", units::none, "Number of ranks."}, row.ranks);
  field({"backend", units::none, "What computed."}, row.backend);
  field({"case", units::none, "The problem, in words."}, row.problem);
  field({"proved", units::none, "Whether the programs were proved to compute every visible pair once."}, row.proved);
  field({"steps", units::none, "Number of steps, null if the proof failed."}, row.steps);
  field({"bytes_sent_max", units::bytes, "Bytes that the busiest rank sends, null if the proof failed."},
        row.bytes_sent_max);
  field({"error", units::error, "Largest error of a whole result, null if the case did not run."}, row.error);
  field({"tolerance", units::error, "What this error may be."}, row.tolerance);
  field({"failure", units::none, "Why the case did not run, or null."}, row.failure);
  field({"wrong", units::none, "Which result is wrong and where, in words, or null."}, row.wrong);
  field({"ok", units::none, "Whether every row, and every head and document, is within its tolerance."}, row.ok());
}

}  // namespace distattn::cli

#include "cli/run/run_report.hpp"

#include <fmt/format.h>

#include "cli/terminal/terminal.hpp"
#include "core/src/format.hpp"
#include "distattn/mask.hpp"

namespace distattn::cli {
namespace {

/// Forward 2·pairs·(d + dv) for each head, backward 2.5 times that.
double flops_of(const Problem& problem, Pass pass) {
  const BandIndex mask(bands_of(problem.mask));
  const auto pairs = static_cast<double>(mask.pairs({problem.first_query(), problem.seq_q, 1}, {0, problem.seq_kv, 1}));
  const double forward =
      2.0 * pairs * static_cast<double>(problem.batch) * problem.heads * (problem.head_dim + problem.value_dim);
  return pass == Pass::forward ? forward : 2.5 * forward;
}

std::string pass_text(const PassRow& row, Pass pass) {
  const auto text = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  return fmt::format(
      "{:<9} {} steps, {} messages, first {}, median {} (predicted {}), {:.2f} GFLOP/s\n"
      "          sent {} max, {} mean; peak remote {}; proved\n",
      name_of(pass), row.steps, row.messages, format_seconds(row.first_s), format_seconds(row.median_s),
      format_seconds(row.predicted_s), row.gflops, text(row.bytes_sent_max), format_bytes(row.bytes_sent_mean),
      text(row.peak_remote_bytes));
}

std::string errors_text(const Errors& errors) {
  std::string text = "error     ";
  for (const Result result : all_results) {
    if (!errors.has(result)) continue;
    text += fmt::format("{}{} {:.2e}", result == Result::o ? "" : ", ", name_of(result), errors.of(result));
  }
  return text + fmt::format(" against float64 (tolerance {:.2e}): {}\n", errors.tolerance,
                            errors.within_tolerance() ? "ok" : "WRONG, " + text_of(errors.worst()));
}

}  // namespace

PassRow row_of(const RunReport& report, Pass pass) {
  const AttentionPlan& plan = report.plan;
  const Counts& counts = plan.counts(pass);
  const Outline& outline = plan.outline(pass);
  const std::optional<Timeline>& predicted = report.predictions.of(pass);
  PassRow row;
  row.mode = outline.mode;
  row.steps = counts.steps;
  row.messages = counts.messages;
  row.bytes_sent_max = largest(counts.bytes_sent);
  row.bytes_sent_mean = mean(counts.bytes_sent);
  row.peak_remote_bytes = largest(counts.peak_remote_bytes);
  row.memory_bytes = largest(counts.memory_bytes);
  row.first_s = report.timing(pass).first_s;
  row.median_s = report.timing(pass).median_s;
  row.gflops = flops_of(outline.sharding.problem, pass) / row.median_s / 1e9;
  if (predicted) row.predicted_s = predicted->seconds;
  return row;
}

RunRow row_of(const RunReport& report) {
  const AttentionPlan& plan = report.plan;
  RunRow row;
  row.schedule = plan.name();
  row.ranks = plan.ranks();
  row.device = report.options.device;
  row.backend = report.options.backend;
  row.transport = report.world.transport();
  row.bootstrap = report.world.bootstrap();
  row.problem = plan.outline(Pass::forward).sharding.problem;
  row.figures = row_of(report, Pass::forward);
  if (plan.has(Pass::backward)) row.backward = row_of(report, Pass::backward);
  if (report.errors) row.error = row_of(*report.errors);
  if (report.errors) row.error_parts = parts_of(*report.errors);
  return row;
}

std::string text_of(const RunReport& report) {
  const RunRow row = row_of(report);
  const Problem& problem = row.problem;
  std::string text = fmt::format("schedule  {} ({}), {} ranks x {} threads, {} over {}\n", row.schedule,
                                 name_of(row.figures.mode), row.ranks, row.device.threads, row.backend, row.transport);
  text += fmt::format("problem   batch {}, {} queries, {} keys, {}/{} heads of {}, {}, mask {}\n", problem.batch,
                      problem.seq_q, problem.seq_kv, problem.heads, problem.kv_heads, problem.head_dim,
                      name_of(problem.dtype), printable(problem.mask.name));
  text += pass_text(row.figures, Pass::forward);
  if (const auto* const backward = std::get_if<PassRow>(&row.backward)) text += pass_text(*backward, Pass::backward);
  return report.errors ? text + errors_text(*report.errors) : text;
}

}  // namespace distattn::cli

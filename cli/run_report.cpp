#include "run_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <limits>

#include "distattn/mask.hpp"
#include "distattn/words.hpp"
#include "problem_fields.hpp"

namespace distattn::cli {

double PassReport::predicted_s() const {
  return predicted ? predicted->seconds : std::numeric_limits<double>::quiet_NaN();
}

double PassReport::flops() const {
  const Problem& p = plan.outline(pass).sharding.problem;
  const BandIndex mask(bands_of(p.mask));
  const auto pairs = static_cast<double>(mask.pairs({p.first_query(), p.seq_q, 1}, {0, p.seq_kv, 1}));
  const double forward = 2.0 * pairs * static_cast<double>(p.batch) * p.heads * (p.head_dim + p.value_dim);
  return pass == Pass::forward ? forward : 2.5 * forward;
}

PassReport pass_of(const RunReport& report, Pass pass) {
  const Timing& timing = pass == Pass::forward ? report.result.forward : report.result.backward;
  return {*report.prepared.plan, pass, timing, report.predictions.of(pass)};
}

void add_pass(const PassReport& pass, Json& json) {
  const Counts& counts = pass.counts();
  json["mode"] = name_of(pass.plan.outline(pass.pass).mode);
  json["steps"] = counts.steps;
  json["messages"] = counts.messages;
  json["bytes_sent_max"] = largest(counts.bytes_sent);
  json["bytes_sent_mean"] = mean(counts.bytes_sent);
  json["peak_remote_bytes"] = largest(counts.peak_remote_bytes);
  json["memory_bytes"] = largest(counts.memory_bytes);
  json["first_s"] = pass.timing.first_s;
  json["median_s"] = pass.timing.median_s;
  json["gflops"] = number_or_null(pass.gflops());
  json["predicted_s"] = number_or_null(pass.predicted_s());
}

namespace {

std::string pass_text(const PassReport& pass) {
  const Counts& counts = pass.counts();
  const auto text = [](std::int64_t bytes) { return bytes_in_words(static_cast<double>(bytes)); };
  return fmt::format(
      "{:<9} {} steps, {} messages, first {}, median {} (predicted {}), {:.2f} GFLOP/s\n"
      "          sent {} max, {} mean; peak remote {}; proved\n",
      name_of(pass.pass), counts.steps, counts.messages, seconds_in_words(pass.timing.first_s),
      seconds_in_words(pass.timing.median_s), seconds_in_words(pass.predicted_s()), pass.gflops(),
      text(largest(counts.bytes_sent)), bytes_in_words(mean(counts.bytes_sent)),
      text(largest(counts.peak_remote_bytes)));
}

std::string errors_text(const Errors& errors) {
  std::string text = "error     ";
  for (const Result result : all_results) {
    if (!errors.backward && pass_of(result) == Pass::backward) continue;
    text += fmt::format("{}{} {:.2e}", result == Result::o ? "" : ", ", name_of(result), errors.of(result));
  }
  return text + fmt::format(" against float64 (tolerance {:.2e}): {}\n", errors.tolerance,
                            errors.within_tolerance() ? "ok" : "WRONG, " + text_of(errors.worst()));
}

}  // namespace

Json json_of(const RunReport& report) {
  const AttentionPlan& plan = *report.prepared.plan;
  const Outline& outline = plan.outline(Pass::forward);
  const Problem& problem = outline.sharding.problem;
  Json json = versioned_object();
  json["schedule"] = report.prepared.name;
  json["ranks"] = outline.sharding.ranks;
  json["threads"] = report.options.device.threads;
  json["backend"] = report.options.backend;
  json["provider"] = report.options.device.provider.empty() ? Json(nullptr) : Json(report.options.device.provider);
  json["deterministic"] = report.options.device.gradient_order == GradientOrder::fixed;
  json["graphs"] = report.options.device.step_graphs == StepGraphs::always;
  json["transport"] = report.world.transport();
  json["bootstrap"] = report.world.bootstrap();
  add_problem(problem, json);
  add_pass(pass_of(report, Pass::forward), json);
  json["backward"] = false;
  if (plan.has(Pass::backward)) {
    json["backward"] = Json::object();
    add_pass(pass_of(report, Pass::backward), json["backward"]);
  }
  json["error"] = report.errors ? json_of(*report.errors) : Json(nullptr);
  json["error_parts"] = report.errors ? parts_of(*report.errors) : Json(nullptr);
  return json;
}

std::string text_of(const RunReport& report) {
  const AttentionPlan& plan = *report.prepared.plan;
  const Outline& outline = plan.outline(Pass::forward);
  const Problem& problem = outline.sharding.problem;
  std::string text = fmt::format("schedule  {} ({}), {} ranks x {} threads, {} over {}\n", report.prepared.name,
                                 name_of(outline.mode), outline.sharding.ranks, report.options.device.threads,
                                 report.options.backend, report.world.transport());
  text += fmt::format("problem   batch {}, {} queries, {} keys, {}/{} heads of {}, {}, mask {}\n", problem.batch,
                      problem.seq_q, problem.seq_kv, problem.heads, problem.kv_heads, problem.head_dim,
                      name_of(problem.dtype), problem.mask.name);
  text += pass_text(pass_of(report, Pass::forward));
  if (plan.has(Pass::backward)) text += pass_text(pass_of(report, Pass::backward));
  return report.errors ? text + errors_text(*report.errors) : text;
}

}  // namespace distattn::cli

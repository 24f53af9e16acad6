#include "cli/bench/bench_report.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/rows/bench.hpp"
#include "cli/rows/tables.hpp"
#include "cli/terminal/console.hpp"
#include "cli/terminal/output.hpp"
#include "core/src/format.hpp"
#include "distattn/error.hpp"
#include "distattn/machine.hpp"

namespace distattn::cli {
namespace {

/// "over ucx 4.00 GiB/s after 2.0 us between nodes, shared by a node's ranks"
std::string text_of(const std::string& transport, const Link& link, const char* where) {
  return fmt::format("over {} {} {}/s after {}\n", transport, where, format_bytes(link.bytes_per_s),
                     format_seconds(link.latency_s));
}

std::string text_of(const std::map<std::string, MeasuredLinks>& transports) {
  std::string text;
  for (const auto& [name, links] : transports) {
    if (links.near) text += text_of(name, *links.near, "within a node");
    if (links.far) {
      text += text_of(name, *links.far,
                      links.far_owner == LinkOwner::node ? "between nodes, all ranks of one together"
                                                         : "between nodes, every rank");
    }
    if (!links.speeds.empty())
      text += fmt::format("{}: ranks compute at {:.2f} of the rates below\n", name, fmt::join(links.speeds, ", "));
  }
  return text;
}

constexpr Column run_columns[] = {{"schedule", "schedule"},
                                  {"pass", "pass"},
                                  {"ranks", "ranks"},
                                  {"threads", "threads"},
                                  {"tokens", "seq"},
                                  {"keys", "seq_kv", Shown::where_rows_differ},
                                  {"mask", "mask", Shown::where_rows_differ},
                                  {"batch", "batch", Shown::where_rows_differ},
                                  {"heads", "heads", Shown::where_rows_differ},
                                  {"key heads", "kv_heads", Shown::where_rows_differ},
                                  {"head dim", "head_dim", Shown::where_rows_differ},
                                  {"value dim", "value_dim", Shown::where_rows_differ},
                                  {"type", "dtype", Shown::where_rows_differ},
                                  {"wire", "wire", Shown::where_rows_differ},
                                  {"mode", "mode", Shown::where_rows_differ},
                                  {"median", "median_s"},
                                  {"p10", "p10_s"},
                                  {"p90", "p90_s"},
                                  {"GFLOP/s", "gflops"},
                                  {"a rank", "gflops_per_rank"},
                                  {"of peak", "share", Shown::where_known},
                                  {"sent max", "bytes_sent_max"},
                                  {"bytes", "bytes_per_s"},
                                  {"exposed", "exposed_s"},
                                  {"predicted", "predicted_s", Shown::where_known},
                                  {"measured/predicted", "ratio_to_prediction", Shown::where_known},
                                  {"error", "max_error", Shown::where_known},
                                  {"#wrong", "wrong", Shown::where_known}};

constexpr Column planning_columns[] = {{"schedule", "schedule"}, {"ranks", "ranks"}, {"tokens", "seq"},
                                       {"packings", "packings"}, {"part", "part"},   {"least", "least_s"},
                                       {"median", "median_s"},   {"90 %", "p90_s"},  {"most", "most_s"}};

constexpr Column serving_columns[] = {{"mix", "mix"},
                                      {"ranks", "ranks"},
                                      {"threads", "threads"},
                                      {"type", "dtype"},
                                      {"requests", "requests"},
                                      {"queries", "queries"},
                                      {"keys", "keys"},
                                      {"page", "page"},
                                      {"median", "median_s"},
                                      {"tokens/s", "tokens_per_s"},
                                      {"read", "read_bytes_per_s"},
                                      {"of peak", "read_share", Shown::where_known},
                                      {"GFLOP/s", "gflops"},
                                      {"of peak", "share", Shown::where_known},
                                      {"error", "max_error", Shown::where_known}};

constexpr Column kernel_columns[] = {{"kernel", "kernel"},
                                     {"pass", "pass", Shown::where_known},
                                     {"coverage", "coverage", Shown::where_known},
                                     {"variant", "variant", Shown::where_known},
                                     {"threads", "threads"},
                                     {"tokens", "seq", Shown::where_known},
                                     {"type", "dtype", Shown::where_rows_differ},
                                     {"latency", "latency_s", Shown::where_known},
                                     {"GFLOP/s", "gflops", Shown::where_known},
                                     {"of peak", "share", Shown::where_known},
                                     {"used", "used", Shown::where_known},
                                     {"fastest", "fastest", Shown::where_known},
                                     {"bytes", "bytes_per_s", Shown::where_known},
                                     {"error", "max_error", Shown::where_known}};

/// The backward pass of a run has a row of its own.
template <class Row>
std::string text_as(const std::vector<Row>& rows, std::span<const Column> columns, BenchForm form) {
  if (form == BenchForm::json) return json_text(rows_json(rows));
  const FieldsOfRows fields = fields_of_rows(rows);
  if (form == BenchForm::csv) return csv_of(fields, "backward");
  const auto table = table_of(fields, columns);
  return form == BenchForm::md ? table.markdown() : table.fitting();
}

}  // namespace

std::string text_of(const std::vector<BenchRow>& rows, BenchForm form) { return text_as(rows, run_columns, form); }
std::string text_of(const std::vector<KernelRow>& rows, BenchForm form) { return text_as(rows, kernel_columns, form); }
std::string text_of(const std::vector<PlanningRow>& rows, BenchForm form) {
  return text_as(rows, planning_columns, form);
}

std::string text_of(const std::vector<ServingRow>& rows, BenchForm form) {
  return text_as(rows, serving_columns, form);
}

Outcome judge(const std::vector<ServingRow>& rows) {
  Outcome outcome = Outcome::fine;
  for (const ServingRow& row : rows) {
    if (row.ok != false) continue;
    outcome = Outcome::wrong_result;
    print_error(
        fmt::format("{} on {} ranks: wrong result (its error is beyond the tolerance): compare with --backend "
                    "reference",
                    row.mix, row.ranks));
  }
  return outcome;
}

std::string worst_ratios(const std::vector<BenchRow>& rows) {
  const BenchRow *least = nullptr, *most = nullptr;
  for (const BenchRow& row : rows) {
    if (std::isnan(row.ratio_to_prediction)) continue;
    if (least == nullptr || row.ratio_to_prediction < least->ratio_to_prediction) least = &row;
    if (most == nullptr || row.ratio_to_prediction > most->ratio_to_prediction) most = &row;
  }
  if (least == nullptr) return "nothing is predicted";
  const auto text = [](const BenchRow& row) {
    return fmt::format("{:.2f} ({} {} on {} ranks)", row.ratio_to_prediction, row.schedule, name_of(row.pass),
                       row.ranks);
  };
  return fmt::format("measured/predicted from {} to {}", text(*least), text(*most));
}

Outcome judge(const std::vector<BenchRow>& rows, const Gates& gates) {
  Outcome outcome = Outcome::fine;
  const auto miss = [&](const BenchRow& row, const std::string& why) {
    outcome = Outcome::wrong_result;
    print_error(fmt::format("{} {} on {} ranks, {} tokens: {}", row.schedule, name_of(row.pass), row.ranks,
                            row.problem.seq_q, why));
  };
  for (const BenchRow& row : rows) {
    if (row.ok == false) {
      miss(row, "wrong result (its error is beyond the tolerance): compare with --backend reference");
    }
    if (gates.least_gflops && row.figures.gflops < *gates.least_gflops) {
      miss(row, fmt::format("{:.2f} GFLOP/s (--min-gflops {}): see whether the machine is busy", row.figures.gflops,
                            *gates.least_gflops));
    }
    if (!gates.most_ratio) continue;
    if (std::isnan(row.ratio_to_prediction)) {
      miss(row,
           "no prediction (the machine states no rates of its type and backend): leave --max-ratio-to-prediction out");
    } else if (row.ratio_to_prediction > *gates.most_ratio) {
      miss(row,
           fmt::format("{:.2f} times the prediction (--max-ratio-to-prediction {}): see whether the machine is busy",
                       row.ratio_to_prediction, *gates.most_ratio));
    }
  }
  return outcome;
}

Outcome judge_variants(const std::vector<KernelRow>& rows) {
  const auto name_of_row = [](const KernelRow& row) {
    return fmt::format("{}, {}, head dimension {}/{}, {}", *row.variant, name_of(*row.pass), row.head_dim,
                       row.value_dim, *row.coverage);
  };
  Outcome outcome = Outcome::fine;
  const KernelRow* failed = nullptr;
  for (const KernelRow& row : rows) {
    if (row.ok != false) continue;
    if (row.failure) {
      if (failed == nullptr) failed = &row;
      continue;
    }
    outcome = Outcome::wrong_result;
    print_error(
        fmt::format("{}: wrong result (its error is beyond the tolerance): leave this kernel out", name_of_row(row)));
  }
  if (failed == nullptr) return outcome;
  throw Error(ErrorKind::environment, fmt::format("{}: {}", name_of_row(*failed), *failed->failure));
}

std::string text_of(const Machine& machine, int head_dim) {
  Columns columns({"tokens", "type", "pass", "full GFLOP/s", "causal GFLOP/s"});
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const KernelRates& rates = machine.rates_of(dtype, pass);
      for (const RateCurve::Point& point : rates.full.points) {
        columns.add({fmt::format("{:.0f}", point.tile), name_of(dtype), name_of(pass),
                     fmt::format("{:.2f}", point.flops_per_s / 1e9),
                     fmt::format("{:.2f}", rates.partial.at(point.tile) / 1e9)});
      }
    }
  }
  return fmt::format(
      "{}, {} cores: {}\ncopies {}/s after {}, merges {}/s\n{}a tile of one head {} forward, {} backward, a million "
      "pairs {}, {}, besides the products of those that blocks of {} queries meet; of one thread:\n{}",
      machine.name, machine.cores, describe_age(machine), format_bytes(machine.near.bytes_per_s),
      format_seconds(machine.near.latency_s), format_bytes(machine.memory_bytes_per_s), text_of(machine.transports),
      format_seconds(machine.tiles.seconds(Pass::forward, head_dim)),
      format_seconds(machine.tiles.seconds(Pass::backward, head_dim)),
      format_seconds(1e6 * machine.tiles.pair_s[Pass::forward]),
      format_seconds(1e6 * machine.tiles.pair_s[Pass::backward]), machine.tiles.block, columns.text());
}

}  // namespace distattn::cli

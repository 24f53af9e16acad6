#include "bench_report.hpp"

#include "cli/rows/tables.hpp"

namespace distattn::cli {
namespace {

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

}  // namespace distattn::cli

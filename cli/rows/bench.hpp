#pragma once
/// The rows of `bench`.

#include "cli/rows/run.hpp"

namespace distattn::cli {

/// One pass of a run, timed and compared.
struct BenchRow : RunRow {
  Pass pass = Pass::forward;
  int runs = 1;
  double least_s = 0, p10_s = 0, p90_s = 0;
  double gflops_per_rank = unknown_number, peak_gflops = unknown_number, share = unknown_number;
  double bytes_per_s = 0, peak_bytes_per_s = unknown_number;
  double exposed_s = 0, idle = 0;
  double ratio_to_prediction = unknown_number;
  double max_error = unknown_number;
  std::optional<std::int64_t> wrong;
  std::optional<bool> ok;
};

inline void fields_of(const BenchRow& row, RowFields& field) {
  fields_of(static_cast<const RunRow&>(row), field);
  field({"pass", units::none, "The pass: forward or backward."}, row.pass);
  field({"runs", units::none, "Runs that were timed, each from a barrier to the end of the slowest rank."}, row.runs);
  field({"least_s", units::seconds, "Time of the fastest run."}, row.least_s);
  field({"p10_s", units::seconds, "10th percentile of the times of the runs."}, row.p10_s);
  field({"p90_s", units::seconds, "90th percentile of the times of the runs."}, row.p90_s);
  field({"gflops_per_rank", units::gflops, "Rate of one rank."}, row.gflops_per_rank);
  field({"peak_gflops", units::gflops, "What the cores of all ranks reach in registers at the same time."},
        row.peak_gflops);
  field({"share", units::share, "gflops / peak_gflops."}, row.share);
  field({"bytes_per_s", units::bytes_per_s, "Bytes of all messages, divided by the median time."}, row.bytes_per_s);
  field({"peak_bytes_per_s", units::bytes_per_s, "What the cores read from memory."}, row.peak_bytes_per_s);
  field({"exposed_s", units::seconds,
         "Time in which a rank only waited for messages, by its own clock, on average over ranks."},
        row.exposed_s);
  field({"idle", units::idle_share, "Share of time in which a rank did not compute."}, row.idle);
  field({"ratio_to_prediction", units::ratio,
         "median_s / predicted_s. With --calibrate the median over rounds of two runs, each divided by its prediction "
         "from the calibration before and after it."},
        row.ratio_to_prediction);
  field({"max_error", units::error,
         "Largest error of this pass, of lse as a share of max(1, its magnitude); null without --check, or with ok "
         "false where it is not finite."},
        row.max_error);
  field({"wrong", units::none, "Number of wrong elements, null without --check."}, row.wrong);
  field({"ok", units::none, "Whether every row, head and document is within its tolerance, null without --check."},
        row.ok);
}

/// A single kernel, timed on all cores.
struct KernelRow {
  std::string kernel, backend;
  std::optional<std::string> provider;
  bool deterministic = false;
  int heads = 1, kv_heads = 1, head_dim = 1, value_dim = 1, threads = 1;
  std::optional<Pass> pass;
  std::optional<std::string> coverage;
  DType dtype = DType::fp32;
  std::optional<std::int64_t> seq;
  double gflops = unknown_number, peak_gflops = unknown_number, share = unknown_number;
  double bytes_per_s = unknown_number, peak_bytes_per_s = unknown_number, latency_s = unknown_number;
  std::optional<std::string> part, variant;
  std::optional<bool> used;
  std::optional<ErrorRow> error;
  double max_error = unknown_number;
  std::optional<bool> ok;
  std::optional<std::string> failure;
  std::optional<bool> fastest;
};

inline void fields_of(const KernelRow& row, RowFields& field) {
  field({"kernel", units::none, "attend, attend-variants, merge or copy."}, row.kernel);
  field({"backend", units::none, "What computed."}, row.backend);
  field({"provider", units::none, "Whose kernels computed, null without --provider."}, row.provider);
  field({"deterministic", units::none, "Whether --deterministic asked for gradients of the same bits in every run."},
        row.deterministic);
  head_fields(row.heads, row.kv_heads, row.head_dim, row.value_dim, field);
  field({"threads", units::none, "Threads that computed."}, row.threads);
  field({"pass", units::none, "For attend: forward or backward."}, row.pass);
  field({"coverage", units::none, "For attend: full or causal tiles."}, row.coverage);
  field({"dtype", units::none, "Element type."}, row.dtype);
  field({"seq", units::tokens, "For attend: side of the tile."}, row.seq);
  field({"gflops", units::gflops, "Rate of all threads together."}, row.gflops);
  field({"peak_gflops", units::gflops, "What the cores reach in registers at the same time."}, row.peak_gflops);
  field({"share", units::share, "gflops / peak_gflops."}, row.share);
  field({"bytes_per_s", units::bytes_per_s, "Bytes that merges read and write, or that copies move."}, row.bytes_per_s);
  field({"peak_bytes_per_s", units::bytes_per_s, "What the cores read from memory."}, row.peak_bytes_per_s);
  field({"latency_s", units::seconds, "For copy: time of an exchange of any size."}, row.latency_s);
  field({"part", units::none, "For attend-variants: the part of the pass that the kernel computes."}, row.part);
  field({"variant", units::none, "For attend-variants: which kernel."}, row.variant);
  field({"used", units::none, "For attend-variants: whether this kernel is the one that runs."}, row.used);
  field({"error", units::none, "For attend-variants: errors against float64, as those of a run."}, row.error);
  field({"max_error", units::error, "For attend-variants: the largest error of this pass."}, row.max_error);
  field({"ok", units::none, "For attend-variants: whether the result is right; only such a kernel is timed."}, row.ok);
  field(
      {"failure", units::none,
       "For attend-variants: why the kernel could not be compared or timed. It counts as wrong, and the other kernels "
       "still have their turn."},
      row.failure);
  field({"fastest", units::none, "For attend-variants: whether no kernel of this part is faster."}, row.fastest);
}

/// Times of several packings.
struct Distribution {
  double least_s = 0, median_s = 0, p90_s = 0, most_s = 0;
};

inline void fields_of(const Distribution& times, RowFields& field) {
  field({"least_s", units::seconds, "The shortest."}, times.least_s);
  field({"median_s", units::seconds, "The median."}, times.median_s);
  field({"p90_s", units::seconds, "The 90th percentile."}, times.p90_s);
  field({"most_s", units::seconds, "The longest."}, times.most_s);
}

/// How long plans of packed documents take: one row for choosing, one for making.
struct PlanningRow {
  std::string schedule, part;
  int ranks = 1, packings = 1;
  std::int64_t seq = 0;
  Distribution times;
};

inline void fields_of(const PlanningRow& row, RowFields& field) {
  field({"schedule", units::none, "The schedule that was asked for."}, row.schedule);
  field({"ranks", units::none, "Number of ranks."}, row.ranks);
  field({"seq", units::tokens, "Length of the sequence."}, row.seq);
  field({"packings", units::none, "Draws of documents, each planned once."}, row.packings);
  field({"part", units::none,
         "choosing: among schedules or placements, where a named schedule leaves no choice; making: lowering and "
         "proving what was chosen."},
        row.part);
  fields_of(row.times, field);
}

inline constexpr Unit token_rate{"tokens/s", units::finite<'f', 1>};

/// A mix of requests, served on some ranks.
struct ServingRow {
  std::string mix, backend;
  int ranks = 1, threads = 1;
  int heads = 1, kv_heads = 1, head_dim = 1, value_dim = 1;
  DType dtype = DType::fp32;
  std::int64_t requests = 0, queries = 0, keys = 0, longest = 0, page = 0, block = 1;
  int runs = 1;
  double median_s = 0, least_s = 0, tokens_per_s = 0;
  double read_bytes_per_s = 0, peak_bytes_per_s = unknown_number, read_share = unknown_number;
  double gflops = 0, peak_gflops = unknown_number, share = unknown_number;
  double max_error = unknown_number;
  std::optional<bool> ok;
};

inline void fields_of(const ServingRow& row, RowFields& field) {
  field({"mix", units::none, "What --serving named."}, row.mix);
  field({"backend", units::none, "What computed."}, row.backend);
  field({"ranks", units::none, "Number of ranks, over which every sequence's cache is dealt."}, row.ranks);
  field({"threads", units::none, "Threads of a rank."}, row.threads);
  head_fields(row.heads, row.kv_heads, row.head_dim, row.value_dim, field);
  field({"dtype", units::none, "Element type of queries and caches."}, row.dtype);
  field({"requests", units::none, "Requests of a call."}, row.requests);
  field({"queries", units::tokens, "Queries of all requests."}, row.queries);
  field({"keys", units::tokens, "Lengths of all sequences together."}, row.keys);
  field({"longest", units::tokens, "Length of the longest sequence."}, row.longest);
  field({"page", units::tokens, "Tokens of a page, 0 without pages."}, row.page);
  field({"block", units::tokens, "Tokens that are dealt to a rank at a time."}, row.block);
  field({"runs", units::none, "Calls that were timed, each from a barrier to the end of the slowest rank."}, row.runs);
  field({"median_s", units::seconds, "Median of the times of the calls."}, row.median_s);
  field({"least_s", units::seconds, "Time of the fastest call."}, row.least_s);
  field({"tokens_per_s", token_rate, "queries / median_s."}, row.tokens_per_s);
  field({"read_bytes_per_s", units::bytes_per_s, "Bytes of the keys and values of all sequences, divided by median_s."},
        row.read_bytes_per_s);
  field({"peak_bytes_per_s", units::bytes_per_s, "What the cores read from memory."}, row.peak_bytes_per_s);
  field({"read_share", units::share, "read_bytes_per_s / peak_bytes_per_s."}, row.read_share);
  field({"gflops", units::gflops, "Rate of all ranks: four operations for each visible pair and element."}, row.gflops);
  field({"peak_gflops", units::gflops, "What the cores of all ranks reach in registers at the same time."},
        row.peak_gflops);
  field({"share", units::share, "gflops / peak_gflops."}, row.share);
  field({"max_error", units::error,
         "Largest relative L2 error, against float64, of the last query of a request; null without --check."},
        row.max_error);
  field({"ok", units::none, "Whether that is within the tolerance, null without --check."}, row.ok);
}

}  // namespace distattn::cli

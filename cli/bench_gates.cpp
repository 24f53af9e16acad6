#include "bench_gates.hpp"

#include <fmt/format.h>

#include <cmath>

#include "console.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {

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

}  // namespace distattn::cli

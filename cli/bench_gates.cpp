#include "bench_gates.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "console.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {

std::string worst_ratios(const std::vector<Json>& rows) {
  const Json *least = nullptr, *most = nullptr;
  const auto ratio = [](const Json* row) { return row->at("ratio_to_prediction").get<double>(); };
  for (const Json& row : rows) {
    if (row["ratio_to_prediction"].is_null()) continue;
    if (least == nullptr || ratio(&row) < ratio(least)) least = &row;
    if (most == nullptr || ratio(&row) > ratio(most)) most = &row;
  }
  if (least == nullptr) return "nothing is predicted";
  const auto text = [&](const Json* row) {
    return fmt::format("{:.2f} ({} {} on {} ranks)", ratio(row), row->at("schedule").get<std::string>(),
                       row->at("pass").get<std::string>(), row->at("ranks").get<int>());
  };
  return fmt::format("measured/predicted from {} to {}", text(least), text(most));
}

Outcome judge(const std::vector<Json>& rows, const Gates& gates) {
  Outcome outcome = Outcome::fine;
  const auto miss = [&](const Json& row, const std::string& why) {
    outcome = Outcome::wrong_result;
    print_error(fmt::format("{} {} on {} ranks, {} tokens: {}", row["schedule"].get<std::string>(),
                            row["pass"].get<std::string>(), row["ranks"].get<int>(), row["seq"].get<std::int64_t>(),
                            why));
  };
  for (const Json& row : rows) {
    if (row["ok"].is_boolean() && !row["ok"].get<bool>())
      miss(row, "wrong result (its error is beyond the tolerance) compare with --backend reference");
    if (gates.least_gflops && row["gflops"].get<double>() < *gates.least_gflops) {
      miss(row, fmt::format("{:.2f} GFLOP/s (--min-gflops {}) see whether the machine is busy",
                            row["gflops"].get<double>(), *gates.least_gflops));
    }
    if (!gates.most_ratio) continue;
    if (row["ratio_to_prediction"].is_null()) {
      miss(row,
           "no prediction (the machine states no rates of its type and backend) leave --max-ratio-to-prediction out");
    } else if (row["ratio_to_prediction"].get<double>() > *gates.most_ratio) {
      miss(row,
           fmt::format("{:.2f} times the prediction (--max-ratio-to-prediction {}) see whether the machine is busy",
                       row["ratio_to_prediction"].get<double>(), *gates.most_ratio));
    }
  }
  return outcome;
}

Outcome judge_variants(const std::vector<Json>& rows) {
  const auto name_of_row = [](const Json& row) {
    return fmt::format("{}, {}, head dimension {}/{}, {}", row["variant"].get<std::string>(),
                       row["pass"].get<std::string>(), row["head_dim"].get<int>(), row["value_dim"].get<int>(),
                       row["coverage"].get<std::string>());
  };
  Outcome outcome = Outcome::fine;
  const Json* failed = nullptr;
  for (const Json& row : rows) {
    if (row["ok"] != false) continue;
    if (row["failure"].is_string()) {
      if (failed == nullptr) failed = &row;
      continue;
    }
    outcome = Outcome::wrong_result;
    print_error(
        fmt::format("{}: wrong result (its error is beyond the tolerance) leave this kernel out", name_of_row(row)));
  }
  if (failed == nullptr) return outcome;
  throw Error(ErrorKind::environment,
              fmt::format("{}: {}", name_of_row(*failed), (*failed)["failure"].get<std::string>()));
}

}  // namespace distattn::cli

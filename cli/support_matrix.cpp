#include "support_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "distattn/features.hpp"
#include "distattn/registry.hpp"
#include "distattn/table.hpp"
#include "output.hpp"

namespace distattn::cli {
namespace {

/// The answers of a table: an empty reason is "yes", others are numbered in the order of their first use.
class Reasons {
 public:
  std::string cell(const std::string& reason) {
    if (reason.empty()) return "yes";
    const auto found = std::find(reasons_.begin(), reasons_.end(), reason);
    const auto number = found - reasons_.begin() + 1;
    if (found == reasons_.end()) reasons_.push_back(reason);
    return fmt::format("({})", number);
  }
  std::string text() const {
    std::string lines;
    for (std::size_t r = 0; r < reasons_.size(); ++r) lines += fmt::format("({}) {}\n", r + 1, reasons_[r]);
    return lines;
  }

 private:
  std::vector<std::string> reasons_;
};

Problem example(Mask mask) {
  Problem problem;
  problem.seq_q = problem.seq_kv = 1024;
  problem.heads = 16;
  problem.kv_heads = 4;
  problem.head_dim = problem.value_dim = 64;
  problem.mask = std::move(mask);
  return problem;
}

struct NamedProblem {
  std::string name;
  Problem problem;
};

/// One problem for each kind of mask, and for fewer and more queries than keys.
std::vector<NamedProblem> problems() {
  Mask window = causal_mask(), sinks = causal_mask(), documents = causal_mask(), both_ways = full_mask();
  window.left = sinks.left = 100;
  sinks.sinks = 4;
  documents.documents = {0, 300, 1024};
  both_ways.left = both_ways.right = 100;
  std::vector<NamedProblem> all = {{"full", example(full_mask())},
                                   {"causal", example(causal_mask())},
                                   {"window", example(window)},
                                   {"two-sided", example(both_ways)},
                                   {"sinks", example(sinks)},
                                   {"documents", example(documents)},
                                   {"prefix", example(prefix_mask(1024, 200))},
                                   {"block-causal", example(block_causal_mask(1024, 100))},
                                   {"decode", example(causal_mask())},
                                   {"more queries", example(causal_mask())}};
  all[8].problem.seq_q = 1;
  all[9].problem.seq_q = 1500;
  return all;
}

std::string schedules_by_mask() {
  constexpr int ranks = 8;
  const std::vector<NamedProblem> columns = problems();
  std::vector<std::string> heads = {"schedule"};
  for (const auto& [name, problem] : columns) heads.push_back(name);
  Columns table(heads);
  Reasons reasons;
  for (const std::string& schedule : all_schedule_names(columns[0].problem, ranks)) {
    std::vector<std::string> cells = {schedule};
    for (const auto& [name, problem] : columns) {
      const RecipeOrReason resolved = resolve_schedule(schedule, problem, ranks);
      const auto* reason = std::get_if<std::string>(&resolved);
      cells.push_back(reasons.cell(reason != nullptr ? *reason : ""));
    }
    table.add(cells);
  }
  return fmt::format("schedules on {} ranks, 16 heads over 4 key heads, forward and backward\n\n{}{}", ranks,
                     table.text(), reasons.text());
}

std::string backends_by_type() {
  Columns table({"backend", "dtype", "8", "64", "96", "128", "192/128", "256"});
  Reasons reasons;
  for (const BackendInfo& known : known_backends(BackendKind::device)) {
    const BackendInfo info = find_backend(BackendKind::device, known.name).value();
    const auto device = info.usable ? make_device(info.name, {.threads = 1}) : nullptr;
    for (const Feature feature : all_features().list()) {
      std::vector<std::string> cells = {info.name, name_of(feature)};
      for (const auto& [head_dim, value_dim] :
           {std::pair(8, 8), {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}}) {
        Problem problem = example(causal_mask());
        ask_for(feature, problem);
        problem.head_dim = head_dim;
        problem.value_dim = value_dim;
        cells.push_back(reasons.cell(device != nullptr ? device->why_not(problem, Pass::backward) : info.why));
      }
      table.add(cells);
    }
  }
  return fmt::format("backends by element type and head_dim (of queries/of values)\n\n{}{}", table.text(),
                     reasons.text());
}

}  // namespace

std::string support_matrix() { return schedules_by_mask() + "\n" + backends_by_type(); }

}  // namespace distattn::cli

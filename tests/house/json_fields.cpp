/// Prints the tables of docs/json.md: for each kind of row "# NAME", then its fields with their units and meanings.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "cli/rows/bench.hpp"
#include "cli/rows/info.hpp"
#include "cli/rows/plan.hpp"
#include "cli/rows/step.hpp"
#include "cli/rows/validation.hpp"

namespace {

using namespace distattn;
using namespace distattn::cli;

class FieldTable {
 public:
  explicit FieldTable(const char* name) { fmt::print("# {}\n| field | unit | meaning |\n|---|---|---|\n", name); }

  /// Fields of objects as "error.o", of each of a list as "….name"; those that mean what others mean in one line.
  void add(const std::vector<Field>& fields, const std::string& path = "") {
    std::string same;
    for (const Field& field : fields) {
      const auto& [name, unit, meaning, follows] = field.about;
      const std::string full = fmt::format("`{}{}{}`", path, name, field.is_list ? "[]" : "");
      if (!names_.insert(full).second) continue;
      if (!path.empty() && meant_.contains({name, meaning})) {
        same += (same.empty() ? "" : ", ") + full;
        continue;
      }
      meant_.insert({name, meaning});
      fmt::print("| {} | {} | {} |\n", full, unit.name, meaning);
      add(field.inner, field.is_list ? "…." : fmt::format("{}{}.", path, name));
    }
    if (!same.empty()) fmt::print("| {} | | As above. |\n", same);
  }

 private:
  std::set<std::string> names_;
  std::set<std::pair<std::string, std::string>> meant_;
};

/// Those of `fields` that a run has not.
std::vector<Field> without_those_of_a_run(std::vector<Field> fields) {
  const std::vector<Field> run = RowFields::of(RunRow{});
  std::erase_if(fields, [&](const Field& field) {
    return std::any_of(run.begin(), run.end(),
                       [&](const Field& other) { return std::string_view(other.about.name) == field.about.name; });
  });
  return fields;
}

PlanRow a_planned_row() {
  PlanRow row;
  Counts& counts = row.plan.counts;
  for (auto* const by_rank : {&counts.bytes_sent, &counts.bytes_far, &counts.peak_remote_values,
                              &counts.peak_remote_bytes, &counts.memory_bytes}) {
    by_rank->push_back(0);
  }
  row.problem = std::make_shared<const Problem>();
  return row;
}

}  // namespace

int main() {
  FieldTable("run").add(RowFields::of(RunRow{}));
  FieldTable("validation").add(RowFields::of(ValidationRow{}));
  FieldTable("plan").add(RowFields::of(a_planned_row()));
  FieldTable("paper").add(RowFields::of(PaperFigure{}));
  FieldTable("step plan").add(RowFields::of(StepPlanRow{}));
  FieldTable("bench").add(without_those_of_a_run(RowFields::of(BenchRow{})));
  FieldTable("kernel").add(RowFields::of(KernelRow{}));
  FieldTable("planning").add(RowFields::of(PlanningRow{}));
  FieldTable("serving").add(RowFields::of(ServingRow{}));
  FieldTable("step").add(RowFields::of(StepRow{}));
  FieldTable("info").add(RowFields::of(InfoRow{}));
  FieldTable("launcher").add(RowFields::of(LauncherRow{}));
}

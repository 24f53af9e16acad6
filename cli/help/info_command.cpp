#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "cli/options/app.hpp"
#include "cli/rows/info.hpp"
#include "cli/rows/tables.hpp"
#include "cli/run/cpu_features.hpp"
#include "cli/terminal/output.hpp"
#include "core/src/format.hpp"
#include "distattn/error.hpp"
#include "distattn/features.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/launch.hpp"
#include "distattn/machine.hpp"
#include "distattn/registry.hpp"
#include "distattn/table.hpp"
#include "distattn/tree.hpp"
#include "distattn/version.hpp"

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
  Mask window = causal_mask(), global = causal_mask(), documents = causal_mask(), both_ways = full_mask();
  window.left = global.left = 100;
  global.sinks = 4;
  documents.documents = {0, 300, 1024};
  both_ways.left = both_ways.right = 100;
  const std::array nodes = {TreeNode{300, -1}, TreeNode{200, 0}, TreeNode{100, 1}, TreeNode{424, 0}};
  std::vector<NamedProblem> all = {{"full", example(full_mask())},
                                   {"causal", example(causal_mask())},
                                   {"window", example(window)},
                                   {"two-sided", example(both_ways)},
                                   {"global-keys", example(global)},
                                   {"documents", example(documents)},
                                   {"prefix", example(prefix_mask(1024, 200))},
                                   {"block-causal", example(block_causal_mask(1024, 100))},
                                   {"tree", example(tree_mask(nodes))},
                                   {"decode", example(causal_mask())},
                                   {"more queries", example(causal_mask())}};
  all[9].problem.seq_q = 1;
  all[10].problem.seq_q = 1500;
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
  Columns table({"backend", "dtype", "8", "64", "96", "128", "192/128", "256", "576/512"});
  Reasons reasons;
  for (const BackendInfo& known : known_backends(BackendKind::device)) {
    const BackendInfo info = find_backend(BackendKind::device, known.name).value();
    const auto device = info.usable ? make_device(info.name, {.threads = 1}) : nullptr;
    for (const Feature feature : all_features().list()) {
      std::vector<std::string> cells = {info.name, name_of(feature)};
      for (const auto& [head_dim, value_dim] :
           {std::pair(8, 8), {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}, {576, 512}}) {
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

/// Two tables: "yes", or the number of the reason below them.
std::string support_matrix() { return schedules_by_mask() + "\n" + backends_by_type(); }

struct InfoOptions {
  bool json = false, matrix = false, why_this_launcher = false;
};

std::optional<std::string> unless_empty(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

/// What predictions stand on; what is wrong with it is part of the answer.
std::string calibration() {
  const std::string age = describe_age(find_machine("this")), why_not = stored_calibration().why_not;
  return why_not.empty() ? age : age + "; " + why_not;
}

std::vector<BackendRow> backend_rows(BackendKind kind) {
  std::vector<BackendRow> rows;
  for (const BackendInfo& info : list_backends()) {
    if (info.kind == kind) rows.push_back({info.name, info.built, info.usable, info.why, unless_empty(info.version)});
  }
  return rows;
}

InfoRow info_row() {
  const HostResources host = host_resources();
  const StepLibrary blas = step_library();
  InfoRow row;
  row.version = version();
  row.commit = commit();
  row.cpu = {cpu_isa(), host.cores(), host.quota};
  if (host.memory_bytes() < HostResources::unlimited) row.memory_bytes = host.memory_bytes();
  row.calibrated = calibration();
  row.step = {blas.why_not.empty(), unless_empty(blas.name), unless_empty(blas.file), blas.why_not};
  row.backends = backend_rows(BackendKind::device);
  row.transports = backend_rows(BackendKind::transport);
  row.bootstraps = backend_rows(BackendKind::bootstrap);
  row.providers = backend_rows(BackendKind::provider);
  return row;
}

std::string info_text() {
  const InfoRow row = info_row();
  const double quota = row.cpu.quota;
  std::string text = fmt::format(
      "distattn {} ({})\ncpu: {}, {} cores{}, {} of memory; for predictions: {}\n", row.version, row.commit,
      row.cpu.isa, row.cpu.cores, std::isfinite(quota) ? fmt::format(" (quota {})", quota) : "",
      format_bytes(static_cast<double>(row.memory_bytes.value_or(HostResources::unlimited))), row.calibrated);
  text += row.step.built ? fmt::format("step loads {} ({})\n\n", row.step.blas.value_or(""),
                                       row.step.file.value_or("wherever the loader finds it"))
                         : fmt::format("step is not built ({})\n\n", row.step.why);
  Columns columns({"kind", "name", "built", "usable", "version", "why"});
  for (const auto& [kind, rows] : {std::pair("backend", row.backends),
                                   {"transport", row.transports},
                                   {"bootstrap", row.bootstraps},
                                   {"provider", row.providers}}) {
    for (const BackendRow& each : rows) {
      columns.add({kind, each.name, each.built ? "yes" : "no", each.usable ? "yes" : "no", each.version.value_or(""),
                   each.why});
    }
  }
  return text + columns.text();
}

std::optional<int> known(int ranks) { return ranks > 0 ? std::optional(ranks) : std::nullopt; }

LauncherRow row_of(const LaunchFindings& findings) {
  LauncherRow row;
  row.bootstrap = unless_empty(findings.bootstrap);
  row.why = findings.why;
  row.rank = findings.rank;
  row.ranks = known(findings.ranks);
  row.local_ranks = known(findings.local_ranks);
  if (row.local_ranks) row.local_rank = findings.local_rank;
  row.variables = findings.variables;
  for (const auto& [name, chosen, why] : findings.bootstraps) row.bootstraps.push_back({name, chosen, why});
  return row;
}

std::string launcher_text(const LaunchFindings& findings) {
  std::string text = findings.bootstrap.empty() ? fmt::format("no bootstrap: {}\n", findings.why)
                                                : fmt::format("{}: {}\n", findings.bootstrap, findings.why);
  const auto place = [](const char* what, int rank, int ranks) {
    return known(ranks) ? fmt::format("{} {} of {}", what, rank, ranks)
                        : fmt::format("{} known when the ranks have met", what);
  };
  if (!findings.bootstrap.empty()) {
    text += fmt::format("{}; {}\n", place("rank", findings.rank, findings.ranks),
                        place("on its node", findings.local_rank, findings.local_ranks));
  }
  Columns ways({"bootstrap", "taken", "why"});
  for (const auto& [name, chosen, why] : findings.bootstraps) ways.add({name, chosen ? "yes" : "no", why});
  text += "\n" + ways.text() + "\n";
  if (findings.variables.empty()) return text + "no variable of a launcher is set\n";
  Columns variables({"variable", "value"});
  for (const auto& [name, value] : findings.variables) variables.add({name, value});
  return text + variables.text();
}

}  // namespace

Command add_info_command(App& root) {
  auto* const app = root.add_subcommand("info", "What is built, what is usable here, and why not");
  const auto options = std::make_shared<InfoOptions>();
  auto* const json = app->add_flag("--json", options->json, "As one JSON object", Group::output);
  auto* const matrix =
      app->add_flag("--matrix", options->matrix, "What is supported: schedules by mask, backends by type and head_dim",
                    Group::output)
          ->excludes(json);
  app->add_flag(
         "--why-this-launcher", options->why_this_launcher,
         "How ranks would find each other here: the bootstrap taken and why, what others lack, the variables seen",
         Group::output)
      ->excludes(matrix);
  return {app, [options] {
            if (options->matrix) {
              print(support_matrix());
            } else if (options->why_this_launcher && options->json) {
              print_json(row_json(row_of(launch_findings())));
            } else if (options->why_this_launcher) {
              print(launcher_text(launch_findings()));
            } else if (options->json) {
              print_json(row_json(info_row()));
            } else {
              print(info_text());
            }
            return Outcome::fine;
          }};
}

}  // namespace distattn::cli

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>

#include "app.hpp"
#include "cli/rows/info.hpp"
#include "cli/rows/tables.hpp"
#include "command.hpp"
#include "cpu_features.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/launch.hpp"
#include "distattn/machine.hpp"
#include "distattn/registry.hpp"
#include "distattn/version.hpp"
#include "distattn/words.hpp"
#include "support_matrix.hpp"

namespace distattn::cli {
namespace {

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
      bytes_in_words(static_cast<double>(row.memory_bytes.value_or(HostResources::unlimited))), row.calibrated);
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

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>
#include <utility>

#include "app.hpp"
#include "command.hpp"
#include "cpu_features.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/launch.hpp"
#include "distattn/machine.hpp"
#include "distattn/registry.hpp"
#include "distattn/version.hpp"
#include "distattn/words.hpp"
#include "output.hpp"
#include "support_matrix.hpp"

namespace distattn::cli {
namespace {

struct InfoOptions {
  bool json = false, matrix = false, why_this_launcher = false;
};

constexpr std::pair<BackendKind, const char*> kinds[] = {{BackendKind::device, "backends"},
                                                         {BackendKind::transport, "transports"},
                                                         {BackendKind::bootstrap, "bootstraps"},
                                                         {BackendKind::provider, "providers"}};

Json json_of(const BackendInfo& info) {
  return {{"name", info.name},
          {"built", info.built},
          {"usable", info.usable},
          {"why", info.why},
          {"version", info.version.empty() ? Json(nullptr) : Json(info.version)}};
}

/// What predictions stand on; what is wrong with it is part of the answer.
std::string calibration() {
  const std::string age = describe_age(find_machine("this")), why_not = stored_calibration().why_not;
  return why_not.empty() ? age : age + "; " + why_not;
}

Json info_json() {
  Json json = versioned_object();
  json["version"] = version();
  json["commit"] = commit();
  const HostResources host = host_resources();
  json["cpu"] = {{"isa", cpu_isa()}, {"cores", host.cores()}, {"quota", number_or_null(host.quota)}};
  json["memory_bytes"] = host.memory_bytes() < HostResources::unlimited ? Json(host.memory_bytes()) : Json(nullptr);
  json["calibrated"] = calibration();
  const StepLibrary blas = step_library();
  json["step"] = {{"built", blas.why_not.empty()},
                  {"blas", blas.name.empty() ? Json(nullptr) : Json(blas.name)},
                  {"file", blas.file.empty() ? Json(nullptr) : Json(blas.file)},
                  {"why", blas.why_not}};
  for (const auto& [kind, key] : kinds) {
    json[key] = Json::array();
    for (const BackendInfo& info : list_backends()) {
      if (info.kind == kind) json[key].push_back(json_of(info));
    }
  }
  return json;
}

std::string info_text() {
  const HostResources host = host_resources();
  std::string text =
      fmt::format("distattn {} ({})\ncpu: {}, {} cores{}, {} of memory; for predictions: {}\n", version(), commit(),
                  cpu_isa(), host.cores(), std::isfinite(host.quota) ? fmt::format(" (quota {})", host.quota) : "",
                  bytes_in_words(static_cast<double>(host.memory_bytes())), calibration());
  const StepLibrary blas = step_library();
  text += blas.why_not.empty() ? fmt::format("step loads {} ({})\n\n", blas.name,
                                             blas.file.empty() ? "wherever the loader finds it" : blas.file)
                               : fmt::format("step is not built ({})\n\n", blas.why_not);
  Columns columns({"kind", "name", "built", "usable", "version", "why"});
  for (const auto& [kind, key] : kinds) {
    for (const BackendInfo& info : list_backends()) {
      if (info.kind != kind) continue;
      columns.add({std::string(key, std::string_view(key).size() - 1), info.name, info.built ? "yes" : "no",
                   info.usable ? "yes" : "no", info.version, info.why});
    }
  }
  return text + columns.text();
}

std::optional<int> known(int ranks) { return ranks > 0 ? std::optional(ranks) : std::nullopt; }

Json number_of(int ranks) { return known(ranks) ? Json(ranks) : Json(nullptr); }

Json launcher_json(const LaunchFindings& findings) {
  Json json = versioned_object();
  json["bootstrap"] = findings.bootstrap.empty() ? Json(nullptr) : Json(findings.bootstrap);
  json["why"] = findings.why;
  json["rank"] = findings.rank;
  json["ranks"] = number_of(findings.ranks);
  json["local_rank"] = findings.local_ranks > 0 ? Json(findings.local_rank) : Json(nullptr);
  json["local_ranks"] = number_of(findings.local_ranks);
  json["variables"] = Json::object();
  for (const auto& [name, value] : findings.variables) json["variables"][name] = value;
  json["bootstraps"] = Json::array();
  for (const auto& [name, chosen, why] : findings.bootstraps) {
    json["bootstraps"].push_back({{"name", name}, {"chosen", chosen}, {"why", why}});
  }
  return json;
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
              print_json(launcher_json(launch_findings()));
            } else if (options->why_this_launcher) {
              print(launcher_text(launch_findings()));
            } else if (options->json) {
              print_json(info_json());
            } else {
              print(info_text());
            }
            return Outcome::fine;
          }};
}

}  // namespace distattn::cli

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <utility>

#include "app.hpp"
#include "command.hpp"
#include "cpu_features.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/machine.hpp"
#include "distattn/registry.hpp"
#include "distattn/version.hpp"
#include "distattn/words.hpp"
#include "output.hpp"
#include "support_matrix.hpp"

namespace distattn::cli {
namespace {

struct InfoOptions {
  bool json = false, matrix = false;
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
  try {
    return describe_age(find_machine("this"));
  } catch (const Error& error) {
    return error.what();
  }
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

}  // namespace

Command add_info_command(App& root) {
  auto* const app = root.add_subcommand("info", "What is built, what is usable here, and why not");
  const auto options = std::make_shared<InfoOptions>();
  auto* const json = app->add_flag("--json", options->json, "As one JSON object");
  app->add_flag("--matrix", options->matrix, "What is supported: schedules by mask, backends by type and head_dim")
      ->excludes(json);
  return {app, [options] {
            if (options->matrix) {
              print(support_matrix());
            } else if (options->json) {
              print_json(info_json());
            } else {
              print(info_text());
            }
            return Outcome::fine;
          }};
}

}  // namespace distattn::cli

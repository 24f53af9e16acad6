#include <cmath>
#include <nlohmann/json.hpp>

#include "distattn/host_resources.hpp"
#include "distattn/machine.hpp"
#include "distattn/registry.hpp"
#include "distattn/version.hpp"

namespace distattn {
namespace {

using Json = nlohmann::ordered_json;

Json backends_of(BackendKind kind, const std::vector<BackendInfo>& all) {
  Json rows = Json::array();
  for (const BackendInfo& info : all) {
    if (info.kind != kind) continue;
    rows.push_back({{"name", info.name},
                    {"built", info.built},
                    {"usable", info.usable},
                    {"why", info.why},
                    {"version", info.version.empty() ? Json() : Json(info.version)}});
  }
  return rows;
}

std::string calibrated() {
  const std::string age = describe_age(find_machine("this")), why_not = stored_calibration().why_not;
  return why_not.empty() ? age : age + "; " + why_not;
}

}  // namespace

std::string info_json() {
  const HostResources host = host_resources();
  const std::vector<BackendInfo> all = list_backends();
  const std::int64_t memory = host.memory_bytes();
  return Json{{"schema_version", 1},
              {"version", version()},
              {"commit", commit()},
              {"cpu", {{"cores", host.cores()}, {"quota", std::isfinite(host.quota) ? Json(host.quota) : Json()}}},
              {"memory_bytes", memory < HostResources::unlimited ? Json(memory) : Json()},
              {"calibrated", calibrated()},
              {"backends", backends_of(BackendKind::device, all)},
              {"transports", backends_of(BackendKind::transport, all)},
              {"bootstraps", backends_of(BackendKind::bootstrap, all)},
              {"providers", backends_of(BackendKind::provider, all)}}
      .dump();
}

}  // namespace distattn

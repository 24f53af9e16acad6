#include "backends/pmix/mpirun.hpp"

#include <string_view>

#include <fmt/core.h>

#include "backends/launch/rank_variables.hpp"
#include "backends/registration.hpp"

namespace distattn::backends::launch {
namespace {

/// PMIx has no variable for the number of ranks, but those who start processes with it do.
Started by_pmix(const Variables& variables) {
  const auto space = variables("PMIX_NAMESPACE");
  if (!space || !variables("PMIX_RANK")) return by_nobody(lacking(variables, {"PMIX_NAMESPACE", "PMIX_RANK"}));
  const bool of_slurm = space->starts_with("slurm.");
  if (const auto mpirun = of_slurm ? std::nullopt : mpirun_environment(variables)) {
    return {fmt::format("PMIX_NAMESPACE is {}, and mpirun says who is where", *space), mpirun->place};
  }
  Place place{*number_in(variables, "PMIX_RANK"), 0, 0, 0};
  // Each may be left over from one launcher around the other.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (place.size == 0 || of_slurm == std::string_view(name).starts_with("SLURM"))
      place.size = number_in(variables, name).value_or(place.size);
  }
  if (place.size == 1) place.local_size = 1;
  return {fmt::format("PMIX_NAMESPACE is {}", *space), place};
}

}  // namespace

std::optional<LauncherEnvironment> mpirun_environment(const Variables& variables) {
  const auto space = variables("PMIX_NAMESPACE"), secret = variables("OMPI_MCA_orte_precondition_transports");
  const auto here = variables("OMPI_COMM_WORLD_RANK") && variables("OMPI_COMM_WORLD_LOCAL_SIZE")
                        ? numbered([&](const std::string& name) {
                            return name.starts_with("OMPI_") ? variables(name) : std::nullopt;
                          })
                        : std::nullopt;
  if (!space || !secret || !here) return std::nullopt;
  LauncherEnvironment found;
  found.launcher = "pmix";
  found.place = here->place;
  found.host = variables("DISTATTN_ADDRESS").value_or("");
  found.ports = ports_of(variables, "PMIX_NAMESPACE", port_for(*space));
  found.token = variables("DISTATTN_TOKEN").value_or(fmt::format("mpirun {} {}", *space, *secret));
  if (!found.one_node() && found.host.empty()) return std::nullopt;
  return found;
}

}  // namespace distattn::backends::launch

namespace distattn::backends {

const launch::LauncherVariables& launcher_pmix() {
  static const launch::LauncherVariables variables{
      .bootstrap = "pmix",
      .names = {"PMIX_NAMESPACE", "PMIX_RANK"},
      .marks = {"PMIX_NAMESPACE", "PMIX_RANK"},
      .nearness = [](const launch::Variables&) { return launch::Nearness::server; },
      .started = launch::by_pmix};
  return variables;
}

}  // namespace distattn::backends

#include "backends/launch/choice.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>

#include <fmt/core.h>

#include "backends/launch/rank_variables.hpp"

namespace distattn::backends::launch {
namespace {

Candidate not_by(const char* bootstrap, std::string why) { return {bootstrap, std::move(why), {}, {}}; }

/// "MASTER_ADDR and MASTER_PORT are not set": those of `names` that are not.
std::string lacking(const Variables& variables, std::initializer_list<const char*> names) {
  std::string text;
  int count = 0;
  for (const char* name : names) {
    if (variables(name)) continue;
    text += fmt::format("{}{}", count++ == 0 ? "" : ", ", name);
  }
  return text + (count == 1 ? " is not set" : " are not set");
}

Candidate of_torchrun(const Variables& variables) {
  if (const auto found = torchrun_surroundings(variables)) {
    return {"torchrun",
            fmt::format("{}, and MASTER_ADDR and MASTER_PORT are set", words_for(*numbered(variables))),
            found->place,
            {}};
  }
  if (const auto here = numbered(variables)) {
    return not_by("torchrun", words_for(*here) + ", but " + lacking(variables, {"MASTER_ADDR", "MASTER_PORT"}));
  }
  return not_by("torchrun", lacking(variables, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}));
}

/// PMIx has no variable for the number of ranks, but those who start processes with it do.
Candidate of_pmix(const Variables& variables) {
  const auto space = variables("PMIX_NAMESPACE");
  if (!space || !variables("PMIX_RANK")) return not_by("pmix", lacking(variables, {"PMIX_NAMESPACE", "PMIX_RANK"}));
  const bool of_slurm = space->starts_with("slurm.");
  if (const auto mpirun = of_slurm ? std::nullopt : mpirun_surroundings(variables)) {
    return {"pmix", fmt::format("PMIX_NAMESPACE is {}, and mpirun says who is where", *space), mpirun->place, {}};
  }
  Place place{*number_in(variables, "PMIX_RANK"), 0, 0, 0};
  // Each may be left over from one launcher around the other.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (place.size == 0 || of_slurm == std::string_view(name).starts_with("SLURM"))
      place.size = number_in(variables, name).value_or(place.size);
  }
  if (place.size == 1) place.local_size = 1;
  return {"pmix", fmt::format("PMIX_NAMESPACE is {}", *space), place, {}};
}

Candidate of_slurm(const Variables& variables) {
  if (const auto found = slurm_surroundings(variables)) {
    return {"slurm", fmt::format("SLURM_PROCID={} of a step", found->place.rank), found->place, {}};
  }
  const auto step = variables("SLURM_STEP_ID");
  if (!variables("SLURM_JOB_ID")) return not_by("slurm", "SLURM_JOB_ID is not set");
  if (!step) return not_by("slurm", "SLURM_STEP_ID is not set: a batch script, or a shell of salloc");
  if (!variables("SLURM_PROCID")) return not_by("slurm", "SLURM_PROCID is not set");
  return not_by("slurm", fmt::format("step {} is a batch script or an interactive shell", *step));
}

/// One of several processes, and nothing says how it may find the others: alone it would do again what each of them
/// does.
Candidate of_nobody(const Variables& variables) {
  Candidate here{"inproc", "no launcher started this process: its ranks are threads", Place{}, {}};
  const auto several = numbered(variables);
  if (several && several->place.size > 1) {
    here.wrong = Error(
        ErrorKind::environment,
        fmt::format("{} (by {}) cannot find the others ({}, PMIX_NAMESPACE neither) set MASTER_ADDR and MASTER_PORT to "
                    "a host and a free port of rank 0, or give bootstrap file:PATH, or inproc for each alone",
                    words_for(*several), several->by->who, lacking(variables, {"MASTER_ADDR", "MASTER_PORT"})));
    return here;
  }
  const auto size = number_in(variables, "WORLD_SIZE");
  if (!several && size.value_or(1) > 1 && variables("MASTER_ADDR") && variables("MASTER_PORT")) {
    here.wrong = Error(ErrorKind::environment,
                       fmt::format("WORLD_SIZE={} says nothing of which rank this is (RANK is not set) set it to 0 to "
                                   "{}, or give bootstrap inproc",
                                   *size, *size - 1));
  }
  return here;
}

Candidate safely(const char* bootstrap, Candidate (*ask)(const Variables&), const Variables& variables) {
  try {
    return ask(variables);
  } catch (const Error& error) {
    return {bootstrap, error.what(), Place{}, error};
  }
}

}  // namespace

std::vector<Candidate> candidates(const Variables& variables) {
  const Candidate torchrun = safely("torchrun", of_torchrun, variables);
  const Candidate pmix = safely("pmix", of_pmix, variables), slurm = safely("slurm", of_slurm, variables);
  const Candidate nobody = safely("inproc", of_nobody, variables);
  // Processes that mpirun or srun started run torchrun, not the other way round.
  if (variables("TORCHELASTIC_RUN_ID")) return {torchrun, pmix, slurm, nobody};
  // A step of Slurm knows more than an address in its script and the numbers of another launcher.
  if (!variables("RANK")) return {pmix, slurm, torchrun, nobody};
  return {pmix, torchrun, slurm, nobody};
}

Candidate started_by(const Variables& variables) {
  const std::vector<Candidate> all = candidates(variables);
  const auto first = std::find_if(all.begin(), all.end(), [](const Candidate& one) { return one.place.has_value(); });
  if (first->wrong) throw Error(*first->wrong);
  return *first;
}

Candidate choose(const Variables& variables) {
  const Candidate first = started_by(variables);
  if (first.bootstrap == "inproc" || first.place->size != 1) return first;
  return {
      "inproc", fmt::format("{} started this process alone: its ranks are threads", first.bootstrap), first.place, {}};
}

std::vector<std::pair<std::string, std::string>> seen_variables(const Variables& variables) {
  std::vector<std::string> names = rank_variable_names();
  std::istringstream others(
      "MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE PMIX_NAMESPACE PMIX_RANK SLURM_JOB_ID "
      "SLURM_STEP_ID SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_STEP_NUM_TASKS SLURM_TASKS_PER_NODE "
      "SLURM_STEP_TASKS_PER_NODE SLURM_NODELIST SLURM_STEP_NODELIST DISTATTN_RANK DISTATTN_ADDRESS DISTATTN_PORT "
      "DISTATTN_TOKEN");
  for (std::string name; others >> name;) names.push_back(name);
  std::vector<std::pair<std::string, std::string>> seen;
  for (const std::string& name : names) {
    const auto value = variables(name);
    if (!value) continue;
    const bool secret = name == "DISTATTN_TOKEN";
    seen.emplace_back(name, secret ? fmt::format("(a secret of {} characters)", value->size()) : *value);
  }
  return seen;
}

}  // namespace distattn::backends::launch

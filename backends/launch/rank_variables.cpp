#include "backends/launch/rank_variables.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace distattn::backends::launch {
namespace {

/// The closest to the process first. An index alone, as Kubernetes gives it, is no rank before a size is set too.
constexpr RankVariables known[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", ""},
    {"MVAPICH", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_LOCAL_SIZE"},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"a PMI launcher, such as that of MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS"},
    {"PALS", "PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"},
    {"a Kubernetes job", "JOB_COMPLETION_INDEX", "WORLD_SIZE", "", ""}};

std::optional<int> optional_number(const Variables& variables, const char* name) {
  return *name == '\0' ? std::nullopt : number_in(variables, name);
}

}  // namespace

std::optional<Numbered> numbered(const Variables& variables) {
  std::optional<Numbered> alone;
  for (const RankVariables& by : known) {
    if (!variables(by.rank) || !variables(by.size)) continue;
    Numbered found{&by, {*number_in(variables, by.rank), *number_in(variables, by.size), 0, 0}};
    Place& place = found.place;
    place.local_rank = optional_number(variables, by.local_rank).value_or(0);
    place.local_size = optional_number(variables, by.local_size).value_or(place.size == 1 ? 1 : 0);
    const bool has_place = place.rank < place.size && (place.local_size == 0 || place.local_rank < place.local_size) &&
                           place.local_size <= place.size && place.local_rank < place.size;
    // A script may have exported a rank and a size of its own to several processes, which somebody else numbers.
    const bool may_be_of_script = &by == known && place.size == 1 && !variables("TORCHELASTIC_RUN_ID");
    if (has_place && may_be_of_script) alone = found;
    if (has_place && alone && place.size == 1) continue;
    if (has_place) return found;
    throw Error(ErrorKind::environment,
                fmt::format("rank {} of {}, local rank {} of {}, cannot be (the variables of {} contradict each other, "
                            "ranks count from 0): start all processes anew",
                            place.rank, place.size, place.local_rank, place.local_size, by.who));
  }
  return alone;
}

std::string rank_without_size(const Variables& variables) {
  for (const RankVariables& by : known) {
    const bool index_alone = *by.local_rank == '\0';
    const std::string rank = variables(by.rank).value_or("");
    const bool is_number = !rank.empty() && rank.find_first_not_of("0123456789") == rank.npos;
    if (is_number && !index_alone && !variables(by.size))
      return fmt::format("{}={} is set, but {} is not", by.rank, rank, by.size);
  }
  return {};
}

std::vector<std::string> rank_variable_names() {
  std::vector<std::string> names;
  for (const RankVariables& by : known) {
    for (const std::string name : {by.rank, by.size, by.local_rank, by.local_size}) {
      if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string words_for(const Numbered& numbered) {
  return fmt::format("{}={} of {}={}", numbered.by->rank, numbered.place.rank, numbered.by->size, numbered.place.size);
}

}  // namespace distattn::backends::launch

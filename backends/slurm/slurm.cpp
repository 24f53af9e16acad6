#include "backends/slurm/slurm.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include <fmt/core.h>

#include "backends/launch/by_variables.hpp"

namespace distattn::backends::launch {
namespace {

std::string required(const Variables& variables, const std::string& name) {
  if (auto value = variables(name)) return *value;
  throw Error(ErrorKind::environment,
              fmt::format("{} (started by srun, which sets it): set it", lacking(variables, {name.c_str()})));
}

int required_number(const Variables& variables, const std::string& name) {
  required(variables, name);
  return *number_in(variables, name);
}

void check_place(const Place& place) {
  if (place.size >= 1 && place.rank < place.size && place.local_rank < place.local_size &&
      place.local_size <= place.size) {
    return;
  }
  throw Error(
      ErrorKind::environment,
      fmt::format("rank {} of {}, {} of {} on its node, is no place (the variables of srun contradict each other): "
                  "start it anew",
                  place.rank, place.size, place.local_rank, place.local_size));
}

/// What is no step of srun: Slurm gives an allocation's interactive shell and its batch script numbers beyond these.
bool is_special_step(const std::string& step) {
  constexpr std::uint32_t last_normal = 0xfffffff0;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), number);
  return error == std::errc() && end == step.data() + step.size() && number > last_normal;
}

/// "node[07-09,12],other" names node07 first, "rack[0-1]_blade[2-3]" rack0_blade2.
std::string first_host(const std::string& list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const std::size_t close = std::min(list.find(']', at), list.size());
    const std::size_t end = std::min(list.find_first_of("-,", at), close);
    host += list.substr(at + 1, end - at - 1);
    at = close;
  }
  return host;
}

/// "4(x2),3": tasks on node `node`.
std::optional<int> tasks_on_node(const std::string& list, int node) {
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    int tasks = 0, times = 1;
    const char* last = list.data() + end;
    const auto [rest, error] = std::from_chars(list.data() + at, last, tasks);
    if (error != std::errc()) return std::nullopt;
    if (last - rest > 3 && rest[0] == '(' && rest[1] == 'x') std::from_chars(rest + 2, last, times);
    if (node < times) return tasks;
    node -= times;
    at = end + 1;
  }
  return std::nullopt;
}

Started by_slurm(const Variables& variables) {
  if (const auto found = slurm_environment(variables)) {
    return {fmt::format("SLURM_PROCID={} of a step", found->place.rank), found->place};
  }
  const auto step = variables("SLURM_STEP_ID");
  if (!variables("SLURM_JOB_ID")) return by_nobody("SLURM_JOB_ID is not set");
  if (!step) return by_nobody("SLURM_STEP_ID is not set: a batch script, or a shell of salloc");
  if (!variables("SLURM_PROCID")) return by_nobody("SLURM_PROCID is not set");
  return by_nobody(fmt::format("step {} is a batch script or an interactive shell", *step));
}

}  // namespace

std::optional<LauncherEnvironment> slurm_environment(const Variables& variables) {
  // Without a step this is the batch script itself, or an interactive shell.
  const auto step = variables("SLURM_STEP_ID");
  if (!variables("SLURM_PROCID") || !step || is_special_step(*step)) return std::nullopt;
  const char* const tasks_name = variables("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (!variables(tasks_name)) return std::nullopt;
  const int node = required_number(variables, "SLURM_NODEID");
  const auto tasks = variables("SLURM_STEP_TASKS_PER_NODE");
  const auto local_size = tasks_on_node(tasks ? *tasks : required(variables, "SLURM_TASKS_PER_NODE"), node);
  LauncherEnvironment found;
  found.launcher = "slurm";
  found.place = {required_number(variables, "SLURM_PROCID"), required_number(variables, tasks_name),
                 required_number(variables, "SLURM_LOCALID"), local_size.value_or(0)};
  check_place(found.place);
  const auto nodes = variables("SLURM_STEP_NODELIST");
  found.host =
      variables("DISTATTN_ADDRESS").value_or(first_host(nodes ? *nodes : required(variables, "SLURM_NODELIST")));
  const std::string job = required(variables, "SLURM_JOB_ID") + "." + *step;
  found.ports = ports_of(variables, "SLURM_JOB_ID", port_for(job));
  found.token = variables("DISTATTN_TOKEN").value_or("slurm " + job);
  return found;
}

}  // namespace distattn::backends::launch

namespace distattn::backends {

/// A step knows more than an address in its script and the numbers of another launcher.
const launch::LauncherVariables& launcher_slurm() {
  static const launch::LauncherVariables variables{
      .bootstrap = "slurm",
      .names = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS",
                "SLURM_STEP_NUM_TASKS", "SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODELIST",
                "SLURM_STEP_NODELIST"},
      .marks = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID"},
      .nearness = [](const launch::Variables&) { return launch::Nearness::step; },
      .started = launch::by_slurm};
  return variables;
}

Registration register_slurm() {
  return launch::by_variables("slurm", launch::slurm_environment, "SLURM_PROCID, SLURM_NTASKS and SLURM_STEP_ID");
}

}  // namespace distattn::backends

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
  const bool has_local_place =
      place.local_size == 0 || (place.local_rank < place.local_size && place.local_size <= place.size);
  if (place.size >= 1 && place.rank < place.size && has_local_place) return;
  throw Error(
      ErrorKind::environment,
      fmt::format(
          "rank {} of {}, local rank {} of {}, cannot be (the variables of srun contradict each other, ranks count "
          "from 0): start all processes anew",
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

/// The first of two variables that is set: that of the step before that of its allocation.
std::optional<std::string> either(const Variables& variables, const char* of_step, const char* of_job) {
  const auto value = variables(of_step);
  return value ? value : variables(of_job);
}

/// Containers and scripts hand on some of srun's variables only. What those that are there imply is not asked for; who
/// shares a node is known at the latest when the ranks have met.
Place place_in_step(const Variables& variables, Rank rank, int size) {
  const auto nodes = either(variables, "SLURM_STEP_NUM_NODES", "SLURM_NNODES");
  const bool one_node = size == 1 || (nodes && *nodes == "1");
  if (one_node) return {rank, size, number_in(variables, "SLURM_LOCALID").value_or(rank), size};
  const auto node = number_in(variables, "SLURM_NODEID");
  const auto tasks = either(variables, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  const auto local_rank = number_in(variables, "SLURM_LOCALID");
  if (!node || !tasks || !local_rank) return {rank, size, 0, 0};
  const auto local_size = tasks_on_node(*tasks, *node);
  if (!local_size) {
    throw Error(ErrorKind::environment,
                fmt::format("node {} has no tasks in {} (the variables of srun contradict each other): start it anew",
                            *node, *tasks));
  }
  return {rank, size, *local_rank, *local_size};
}

/// Where the ranks of a step find rank 0; of those on one node nobody asks.
std::string host_of_first(const Variables& variables, bool one_node) {
  if (const auto address = variables("DISTATTN_ADDRESS")) return *address;
  if (const auto nodes = either(variables, "SLURM_STEP_NODELIST", "SLURM_NODELIST")) return first_host(*nodes);
  return one_node ? "" : first_host(required(variables, "SLURM_NODELIST"));
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
  LauncherEnvironment found;
  found.launcher = "slurm";
  found.place =
      place_in_step(variables, required_number(variables, "SLURM_PROCID"), required_number(variables, tasks_name));
  check_place(found.place);
  found.host = host_of_first(variables, found.one_node());
  const std::string job =
      (found.place.size == 1 ? variables("SLURM_JOB_ID").value_or("") : required(variables, "SLURM_JOB_ID")) + "." +
      *step;
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

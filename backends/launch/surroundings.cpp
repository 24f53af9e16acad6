#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <numeric>

#include <fmt/core.h>

#include "backends/launch/launcher.hpp"

namespace distattn::backends::launch {
namespace {

constexpr int spare_ports = 8;

std::string required(const Variables& variables, const char* launcher, const std::string& name) {
  if (auto value = variables(name)) return *value;
  throw Error(ErrorKind::environment,
              fmt::format("{} is not set (started by {}, which sets it) set it", name, launcher));
}

int required_number(const Variables& variables, const char* launcher, const std::string& name) {
  required(variables, launcher, name);
  return *number_in(variables, name);
}

void check_place(const Place& place, const char* launcher) {
  if (place.size >= 1 && place.rank < place.size && place.local_rank < place.local_size &&
      place.local_size <= place.size) {
    return;
  }
  throw Error(
      ErrorKind::environment,
      fmt::format("rank {} of {}, {} of {} on its node, is no place (the variables of {} contradict each other) "
                  "start it anew",
                  place.rank, place.size, place.local_rank, place.local_size, launcher));
}

/// Where ranks may meet: at DISTATTN_PORT, else at `usual`, which `name` says, or one of the few behind it.
std::vector<int> ports_of(const Variables& variables, const std::string& name, int usual) {
  const auto own = number_in(variables, "DISTATTN_PORT");
  const int first = own.value_or(usual), last = own ? first : std::min(first + spare_ports - 1, 65535);
  if (first < 1 || first > 65535) {
    throw Error(ErrorKind::environment, fmt::format("{}={} is no port (they count from 1 to 65535) name a free one",
                                                    own ? "DISTATTN_PORT" : name, first));
  }
  std::vector<int> ports(static_cast<std::size_t>(last - first + 1));
  std::iota(ports.begin(), ports.end(), first);
  return ports;
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

}  // namespace

std::optional<std::string> process_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<int> number_in(const Variables& variables, const std::string& name) {
  const auto text = variables(name);
  if (!text) return std::nullopt;
  int number = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < 0) {
    throw Error(ErrorKind::environment,
                fmt::format("{}={} is no number (0 or more is expected) correct it", name, *text));
  }
  return number;
}

std::optional<Surroundings> torchrun_surroundings(const Variables& variables) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    if (!variables(name)) return std::nullopt;
  }
  constexpr const char* launcher = "torchrun";
  Surroundings found;
  found.launcher = launcher;
  found.place = {required_number(variables, launcher, "RANK"), required_number(variables, launcher, "WORLD_SIZE"),
                 required_number(variables, launcher, "LOCAL_RANK"),
                 required_number(variables, launcher, "LOCAL_WORLD_SIZE")};
  check_place(found.place, launcher);
  found.host = variables("DISTATTN_ADDRESS").value_or(required(variables, launcher, "MASTER_ADDR"));
  const bool agent_listens = variables("TORCHELASTIC_USE_AGENT_STORE") == "True";
  const int master_port = required_number(variables, launcher, "MASTER_PORT");
  found.ports =
      ports_of(variables, agent_listens ? "MASTER_PORT+1" : "MASTER_PORT", master_port + (agent_listens ? 1 : 0));
  found.token = variables("DISTATTN_TOKEN");
  // torchrun calls runs "none" that nobody named.
  if (const auto run = variables("TORCHELASTIC_RUN_ID"); !found.token && run && *run != "none") {
    found.token = fmt::format("torchrun {} {} {}", *run, found.host, master_port);
  }
  return found;
}

std::optional<Surroundings> slurm_surroundings(const Variables& variables) {
  // Without a step this is the batch script itself, or an interactive shell.
  if (!variables("SLURM_PROCID") || !variables("SLURM_STEP_ID") || !variables("SLURM_NTASKS")) return std::nullopt;
  constexpr const char* launcher = "srun";
  const int node = required_number(variables, launcher, "SLURM_NODEID");
  const auto tasks = variables("SLURM_STEP_TASKS_PER_NODE");
  const auto local_size = tasks_on_node(tasks ? *tasks : required(variables, launcher, "SLURM_TASKS_PER_NODE"), node);
  Surroundings found;
  found.launcher = "slurm";
  found.place = {required_number(variables, launcher, "SLURM_PROCID"),
                 required_number(variables, launcher, "SLURM_NTASKS"),
                 required_number(variables, launcher, "SLURM_LOCALID"), local_size.value_or(0)};
  check_place(found.place, launcher);
  const auto nodes = variables("SLURM_STEP_NODELIST");
  found.host = variables("DISTATTN_ADDRESS")
                   .value_or(first_host(nodes ? *nodes : required(variables, launcher, "SLURM_NODELIST")));
  const std::string job =
      required(variables, launcher, "SLURM_JOB_ID") + "." + required(variables, launcher, "SLURM_STEP_ID");
  constexpr std::size_t first_port = 20000, range = 10000;
  found.ports =
      ports_of(variables, "SLURM_JOB_ID", static_cast<int>(first_port + std::hash<std::string>()(job) % range));
  found.token = variables("DISTATTN_TOKEN").value_or("slurm " + job);
  return found;
}

}  // namespace distattn::backends::launch

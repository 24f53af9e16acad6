#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>

#include <fmt/core.h>

#include "backends/launch/launcher.hpp"
#include "backends/launch/rank_variables.hpp"

namespace distattn::backends::launch {
namespace {

constexpr int spare_ports = 8, last_port = 65535;

void check_port(const std::string& name, int port) {
  if (port >= 1 && port <= last_port) return;
  throw Error(ErrorKind::environment,
              fmt::format("{}={} is no port (they count from 1 to {}) name a free one", name, port, last_port));
}

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

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

/// The folder that torchrun's agent makes for the workers of one start, each of which has a file for its errors in one
/// of its own there. Empty where it made none.
std::string folder_of_start(const Variables& variables) {
  const std::filesystem::path file = variables("TORCHELASTIC_ERROR_FILE").value_or("");
  const bool of_own = file.parent_path().filename() == variables("LOCAL_RANK").value_or("");
  return of_own ? file.parent_path().parent_path().string() : "";
}

/// What is no step of srun: Slurm gives an allocation's interactive shell and its batch script numbers beyond these.
bool is_special_step(const std::string& step) {
  constexpr std::uint32_t last_normal = 0xfffffff0;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), number);
  return error == std::errc() && end == step.data() + step.size() && number > last_normal;
}

/// Where ranks may meet: at DISTATTN_PORT, else at `usual`, which `name` says, or one of the few behind it.
std::vector<int> ports_of(const Variables& variables, const std::string& name, int usual) {
  const auto own = own_port(variables);
  const int first = own.value_or(usual), last = own ? first : std::min(first + spare_ports - 1, last_port);
  check_port(own ? "DISTATTN_PORT" : name, first);
  std::vector<int> ports(static_cast<std::size_t>(last - first + 1));
  std::iota(ports.begin(), ports.end(), first);
  return ports;
}

/// For a run of that name, where its launcher names no port.
int port_for(const std::string& run) {
  constexpr std::size_t first_port = 20000, range = 10000;
  return static_cast<int>(first_port + std::hash<std::string>()(run) % range);
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

std::optional<int> own_port(const Variables& variables) {
  const auto port = number_in(variables, "DISTATTN_PORT");
  if (port && *port != 0) check_port("DISTATTN_PORT", *port);
  return port;
}

void check_size(int asked, const std::string& launcher, int started) {
  if (asked == 0 || asked == started) return;
  refuse(
      fmt::format("{} ranks are asked for (by {} come {}) leave out their number, start as many, or take bootstrap "
                  "inproc for threads of each process",
                  asked, launcher, started));
}

std::optional<Surroundings> torchrun_surroundings(const Variables& variables) {
  const auto host = variables("MASTER_ADDR");
  if (!host || !variables("MASTER_PORT")) return std::nullopt;
  const auto here = numbered(variables);
  if (!here) return std::nullopt;
  Surroundings found;
  found.launcher = "torchrun";
  found.place = here->place;
  found.loopback = is_loopback(*host);
  found.host = variables("DISTATTN_ADDRESS").value_or(*host);
  const bool agent_listens = variables("TORCHELASTIC_USE_AGENT_STORE") == "True";
  const int master_port = *number_in(variables, "MASTER_PORT");
  found.ports =
      ports_of(variables, agent_listens ? "MASTER_PORT+1" : "MASTER_PORT", master_port + (agent_listens ? 1 : 0));
  found.token = variables("DISTATTN_TOKEN");
  found.start = folder_of_start(variables);
  // torchrun calls runs "none" that nobody named. How often it has started the workers anew is no part of the name:
  // each node's agent counts for itself.
  if (const auto run = variables("TORCHELASTIC_RUN_ID"); !found.token && run && *run != "none") {
    found.token = fmt::format("torchrun {} {} {}", *run, *host, master_port);
  }
  return found;
}

std::optional<Surroundings> slurm_surroundings(const Variables& variables) {
  constexpr const char* launcher = "srun";
  // Without a step this is the batch script itself, or an interactive shell.
  const auto step = variables("SLURM_STEP_ID");
  if (!variables("SLURM_PROCID") || !step || is_special_step(*step)) return std::nullopt;
  const char* const tasks_name = variables("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (!variables(tasks_name)) return std::nullopt;
  const int node = required_number(variables, launcher, "SLURM_NODEID");
  const auto tasks = variables("SLURM_STEP_TASKS_PER_NODE");
  const auto local_size = tasks_on_node(tasks ? *tasks : required(variables, launcher, "SLURM_TASKS_PER_NODE"), node);
  Surroundings found;
  found.launcher = "slurm";
  found.place = {required_number(variables, launcher, "SLURM_PROCID"), required_number(variables, launcher, tasks_name),
                 required_number(variables, launcher, "SLURM_LOCALID"), local_size.value_or(0)};
  check_place(found.place, launcher);
  const auto nodes = variables("SLURM_STEP_NODELIST");
  found.host = variables("DISTATTN_ADDRESS")
                   .value_or(first_host(nodes ? *nodes : required(variables, launcher, "SLURM_NODELIST")));
  const std::string job = required(variables, launcher, "SLURM_JOB_ID") + "." + *step;
  found.ports = ports_of(variables, "SLURM_JOB_ID", port_for(job));
  found.token = variables("DISTATTN_TOKEN").value_or("slurm " + job);
  return found;
}

std::optional<Surroundings> mpirun_surroundings(const Variables& variables) {
  const auto space = variables("PMIX_NAMESPACE"), secret = variables("OMPI_MCA_orte_precondition_transports");
  const auto here = variables("OMPI_COMM_WORLD_RANK") && variables("OMPI_COMM_WORLD_LOCAL_SIZE")
                        ? numbered([&](const std::string& name) {
                            return name.starts_with("OMPI_") ? variables(name) : std::nullopt;
                          })
                        : std::nullopt;
  if (!space || !secret || !here) return std::nullopt;
  Surroundings found;
  found.launcher = "pmix";
  found.place = here->place;
  found.host = variables("DISTATTN_ADDRESS").value_or("");
  found.ports = ports_of(variables, "PMIX_NAMESPACE", port_for(*space));
  found.token = variables("DISTATTN_TOKEN").value_or(fmt::format("mpirun {} {}", *space, *secret));
  if (!found.one_node() && found.host.empty()) return std::nullopt;
  return found;
}

}  // namespace distattn::backends::launch

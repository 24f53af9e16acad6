#include "backends/torchrun/torchrun.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cctype>
#include <filesystem>

#include <fmt/core.h>

#include "backends/launch/by_variables.hpp"
#include "backends/launch/rank_variables.hpp"

namespace distattn::backends::launch {
namespace {

/// "[::1]" is ::1, as it stands in front of a port.
std::string without_brackets(const std::string& host) {
  const bool has_both = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return has_both ? host.substr(1, host.size() - 2) : host;
}

bool is_loopback(std::string host) {
  constexpr unsigned loopback_net = 127;
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == loopback_net;
  if (::inet_pton(AF_INET6, host.c_str(), &six) == 1)
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == loopback_net);
  if (host.ends_with('.')) host.pop_back();
  for (char& letter : host) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return host == "localhost" || host == "localhost.localdomain" || host == "ip6-localhost" || host == "ip6-loopback";
}

/// The folder that torchrun's agent makes for the workers of one start, each of which has a file for its errors in one
/// of its own there. Empty where it made none.
std::string folder_of_start(const Variables& variables) {
  const std::filesystem::path file = variables("TORCHELASTIC_ERROR_FILE").value_or("");
  const bool of_own = file.parent_path().filename() == variables("LOCAL_RANK").value_or("");
  return of_own ? file.parent_path().parent_path().string() : "";
}

Started by_torchrun(const Variables& variables) {
  if (const auto found = torchrun_environment(variables)) {
    return {fmt::format("{}, and MASTER_ADDR and MASTER_PORT are set", words_for(*numbered(variables))), found->place};
  }
  if (const auto here = numbered(variables)) {
    return by_nobody(words_for(*here) + ", but " + lacking(variables, {"MASTER_ADDR", "MASTER_PORT"}));
  }
  return by_nobody(lacking(variables, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}));
}

/// Processes that mpirun or srun started run torchrun, not the other way round. Without a rank of the process's own, a
/// script may have set the address for something else; and what says that there is one rank may have been exported to
/// every task of a step, each of which would be a run of its own.
Nearness nearness_of_torchrun(const Variables& variables) {
  if (variables("TORCHELASTIC_RUN_ID")) return Nearness::agent;
  return variables("RANK") && variables("WORLD_SIZE") != "1" ? Nearness::own_rank : Nearness::address;
}

}  // namespace

std::optional<LauncherEnvironment> torchrun_environment(const Variables& variables) {
  const auto host = variables("MASTER_ADDR");
  if (!host || !variables("MASTER_PORT")) return std::nullopt;
  const auto here = numbered(variables);
  if (!here) return std::nullopt;
  LauncherEnvironment found;
  found.launcher = "torchrun";
  found.place = here->place;
  found.token = variables("DISTATTN_TOKEN");
  found.host = without_brackets(variables("DISTATTN_ADDRESS").value_or(*host));
  // The master of a PyTorchJob is told localhost, and its workers the name of a service.
  found.loopback = is_loopback(found.host) && !found.token;
  if (is_loopback(found.host)) found.host = "127.0.0.1";
  const bool agent_listens = variables("TORCHELASTIC_USE_AGENT_STORE") == "True";
  const int master_port = *number_in(variables, "MASTER_PORT");
  found.ports =
      ports_of(variables, agent_listens ? "MASTER_PORT+1" : "MASTER_PORT", master_port + (agent_listens ? 1 : 0));
  found.start = folder_of_start(variables);
  // torchrun calls runs "none" that nobody named. How often it has started the workers anew is no part of the name:
  // each node's agent counts for itself.
  if (const auto run = variables("TORCHELASTIC_RUN_ID"); !found.token && run && *run != "none") {
    found.token = fmt::format("torchrun {} {} {}", *run, *host, master_port);
  }
  return found;
}

}  // namespace distattn::backends::launch

namespace distattn::backends {

const launch::LauncherVariables& launcher_torchrun() {
  static const launch::LauncherVariables variables{
      .bootstrap = "torchrun",
      .names = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"},
      .marks = {"TORCHELASTIC_RUN_ID", "LOCAL_RANK"},
      .nearness = launch::nearness_of_torchrun,
      .started = launch::by_torchrun};
  return variables;
}

Registration register_torchrun() {
  return launch::by_variables("torchrun", launch::torchrun_environment,
                              "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

}  // namespace distattn::backends

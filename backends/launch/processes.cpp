#include "backends/launch/processes.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/core.h>

namespace distattn::backends::launch {
namespace {

/// Variables that are all of one rank alone, as its launcher set them.
struct Marks {
  std::vector<const char*> names;
  bool may_be_by_hand = false;  ///< written in a shell, which is no launcher where it lets the rank go
};

bool are_set(const std::vector<const char*>& names, const Variables& variables) {
  return std::all_of(names.begin(), names.end(), [&](const char* name) { return variables(name).has_value(); });
}

/// Those of launchers that no bootstrap knows. A rank alone, as in a Kubernetes job, names nobody who waits for its
/// end; with a local rank somebody started several.
Marks marks_of_others(const Variables& variables) {
  static const Marks known[] = {{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
                                {{"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"}},
                                {{"FLUX_JOB_ID", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"}},
                                {{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"}},
                                {{"PMI_RANK", "PMI_SIZE", "PMI_FD"}},  // to the proxy of Hydra, of MPICH and Intel MPI
                                {{"PMI_RANK", "PMI_SIZE", "PMI_PORT"}},
                                {{"PMI_RANK", "PMI_SIZE"}, true},  // as of Cray's PALS, which tells of no line
                                {{"RANK", "WORLD_SIZE", "LOCAL_RANK"}, true}};
  const auto set = std::find_if(std::begin(known), std::end(known),
                                [&](const Marks& marks) { return are_set(marks.names, variables); });
  return set == std::end(known) ? Marks() : *set;
}

Marks marks_in(const Launchers& launchers, const Variables& variables) try {
  const LauncherVariables* nearest = nullptr;
  for (const LauncherVariables* launcher : launchers) {
    if (!are_set(launcher->marks, variables) || !launcher->started(variables).place) continue;
    if (nearest == nullptr || launcher->nearness(variables) > nearest->nearness(variables)) nearest = launcher;
  }
  return nearest != nullptr ? Marks{nearest->marks} : marks_of_others(variables);
} catch (const Error&) {
  return {};  // variables that contradict each other: whoever needs them will say so
}

bool ignores_hangups(int pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("SigIgn:")) continue;
    std::uint64_t signals = 0;
    std::istringstream(line.substr(line.find(':') + 1)) >> std::hex >> signals;
    return (signals >> (SIGHUP - 1) & 1) != 0;
  }
  return false;
}

bool is_shell(const Process& process) {
  constexpr std::string_view shells[] = {"sh", "ash", "bash", "dash", "fish", "ksh", "mksh", "csh", "tcsh", "zsh"};
  return std::find(std::begin(shells), std::end(shells), process.name) != std::end(shells);
}

/// nohup or setsid between the two: this process is to go on when that one ends. Where hangups are ignored everywhere,
/// nohup cannot be seen: then it is a shell's word.
bool was_let_go_by(const Process& process) {
  if (::getsid(process.pid) != ::getsid(0)) return true;
  return ignores_hangups(::getpid()) && (is_shell(process) || !ignores_hangups(process.pid));
}

}  // namespace

std::optional<Process> process_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const std::size_t name_begin = text.find('('), name_end = text.rfind(')');
  if (name_end == std::string::npos || name_begin >= name_end) {
    if (::kill(pid, 0) != 0 && errno == ESRCH) return std::nullopt;
    return Process{pid, 0, unknown_of_process, unknown_of_process};
  }
  Process found{pid, 0, text.substr(name_begin + 1, name_end - name_begin - 1), ""};
  std::istringstream words(text.substr(name_end + 1));
  std::string state, word;
  words >> state >> found.parent;
  if (state == "Z" || state == "X") return std::nullopt;
  constexpr int between = 17;  // fields of proc(5): the parent is the fourth, starttime the twenty-second
  for (int i = 0; i < between; ++i) words >> word;
  words >> found.born;
  return found;
}

std::optional<std::string> variable_of(int pid, const std::string& name) {
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return std::nullopt;
}

Digest command_identity() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::error_code nowhere;
  text += std::filesystem::current_path(nowhere).string();
  return sha256(std::as_bytes(std::span(text)));
}

std::optional<Launcher> find_launcher(const Launchers& launchers, const Variables& variables) {
  const Marks found = marks_in(launchers, variables);
  const std::vector<const char*>& marks = found.names;
  if (marks.empty()) return std::nullopt;
  const auto is_rank = [&](int pid) {
    return std::all_of(marks.begin(), marks.end(),
                       [&](const char* name) { return variable_of(pid, name) == variables(name); });
  };
  constexpr int first_of_all = 1;  // its end is that of the machine or container
  bool is_parent = true;
  for (int pid = ::getppid(); pid > first_of_all; is_parent = false) {
    const auto above = process_of(pid);
    if (!above) return std::nullopt;
    if (!is_rank(pid)) {
      if (found.may_be_by_hand && was_let_go_by(*above)) return std::nullopt;
      return Launcher{*above, is_parent};
    }
    pid = above->parent;
  }
  return std::nullopt;
}

}  // namespace distattn::backends::launch

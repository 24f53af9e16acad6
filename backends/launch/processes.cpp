#include "backends/launch/processes.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <system_error>
#include <vector>

#include <fmt/core.h>

namespace distattn::backends::launch {
namespace {

/// Variables that are of one rank alone, as its launcher set them. Those of torchrun are others' habit too, who write
/// them by hand and are no launcher; its agent says more.
std::vector<std::string> marks(const Variables& variables) try {
  if (variables("TORCHELASTIC_RUN_ID") && variables("LOCAL_RANK")) return {"TORCHELASTIC_RUN_ID", "LOCAL_RANK"};
  if (variables("PMIX_NAMESPACE") && variables("PMIX_RANK")) return {"PMIX_NAMESPACE", "PMIX_RANK"};
  if (slurm_surroundings(variables)) return {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID"};
  return {};
} catch (const Error&) {
  return {};  // variables that contradict each other: whoever needs them will say so
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

std::optional<Launcher> find_launcher(const Variables& variables) {
  const std::vector<std::string> names = marks(variables);
  if (names.empty()) return std::nullopt;
  const auto is_rank = [&](int pid) {
    return std::all_of(names.begin(), names.end(),
                       [&](const std::string& name) { return variable_of(pid, name) == variables(name); });
  };
  constexpr int first_of_all = 1;  // its end is that of the machine or container
  bool is_parent = true;
  for (int pid = ::getppid(); pid > first_of_all; is_parent = false) {
    const auto above = process_of(pid);
    if (!above) return std::nullopt;
    if (!is_rank(pid)) return Launcher{*above, is_parent};
    pid = above->parent;
  }
  return std::nullopt;
}

}  // namespace distattn::backends::launch

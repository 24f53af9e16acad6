#pragma once
/// Processes of this machine, as /proc shows them.

#include <optional>
#include <string>

#include "backends/launch/launcher.hpp"
#include "backends/launch/sha256.hpp"

namespace distattn::backends::launch {

/// What cannot be seen of a process.
inline constexpr const char* unknown_of_process = "unknown";

struct Process {
  int pid = 0, parent = 0;
  std::string name;
  std::string born;  ///< in the system's clock ticks: numbers are given again
};

/// Nothing if it has ended, whether or not its parent has noticed; `born` may be unknown_of_process.
std::optional<Process> process_of(int pid);
/// A variable as that process was started with it; nothing also where that must not be known.
std::optional<std::string> variable_of(int pid, const std::string& name);

/// What this process was told to do, and in which folder: the same for the ranks of a run, as a rule.
Digest command_identity();

/// The process that started this one as a rank: the closest above it that was not itself started as that rank, as
/// shells and scripts between the two were. Nothing without a launcher, where it cannot be seen, as from a container,
/// or where RANK and LOCAL_RANK alone name it and nohup or setsid lets the rank outlive it.
struct Launcher {
  Process process;
  bool is_parent = false;  ///< nothing lies between
};
std::optional<Launcher> find_launcher(const Launchers& launchers, const Variables& variables);

}  // namespace distattn::backends::launch

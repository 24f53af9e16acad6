#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "backends/launch/bootstrap.hpp"
#include "backends/launch/launcher.hpp"
#include "backends/launch/meeting_file.hpp"

namespace distattn::backends::launch {

std::string boot_identity() {
  std::string boot = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

namespace {

/// Name of one of this process's namespaces, as "net:[4026531840]".
std::string namespace_of(const char* kind) {
  char name[64] = {};
  const ssize_t length = ::readlink((std::string("/proc/self/ns/") + kind).c_str(), name, sizeof name - 1);
  return length > 0 ? std::string(name, static_cast<std::size_t>(length)) : std::string(kind) + ":unknown";
}

}  // namespace

std::string node_identity() { return boot_identity() + "/" + namespace_of("net"); }
std::string pid_namespace() { return namespace_of("pid"); }

std::unique_ptr<Bootstrap> meet_at_file(const std::string& path, int size, const Variables& variables,
                                        double timeout_s) {
  const auto all_come_by = after_seconds(timeout_s);
  MeetingFile file(path, size, number_in(variables, "DISTATTN_RANK"), all_come_by);
  const Place place = file.wait_for_all(all_come_by);
  const auto announced_by = after_seconds(timeout_s);
  if (place.rank != 0) {
    const auto look = [&] {
      return Whereabouts{file.announced(announced_by), file.token(), "it has not said where in " + path};
    };
    return std::make_unique<ProcessBootstrap>("file", place, look, timeout_s);
  }

  // The name is taken away however this ends, so that the next run finds no trace of it.
  struct Remover {
    MeetingFile& file;
    ~Remover() { file.remove(); }
  } const remover{file};
  const Listening listening = [&] {
    try {
      return listen_for_ranks(file.one_node(), variables);
    } catch (const Error& error) {
      file.give_up(error, announced_by);
      throw;
    }
  }();
  file.announce(listening.endpoints, announced_by);
  return std::make_unique<ProcessBootstrap>("file", place, listening.socket, file.token(), timeout_s);
}

}  // namespace distattn::backends::launch

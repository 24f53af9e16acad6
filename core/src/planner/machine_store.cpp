#include "core/src/planner/machine_store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <system_error>

#include "core/src/embedded.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/io.hpp"

namespace distattn {

namespace fs = std::filesystem;

namespace {

fs::path environment_path(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value == '/' ? fs::path(value) : fs::path();
}

/// Homes are shared by machines that are not alike.
std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || *name == '\0') return "host";
  std::string text = name;
  for (char& c : text) {
    if (c == '/') c = '_';
  }
  return text;
}

/// Seconds since the epoch of "2026-02-03T04:05:06Z", or 0.
std::time_t time_of(const std::string& utc) {
  std::tm parts{};
  const char* end = ::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return end != nullptr && *end == '\0' ? ::timegm(&parts) : 0;
}

}  // namespace

fs::path calibration_file() {
  const std::string name = fmt::format("machine-{}-{}.json", host_name(), usable_cores());
  if (const fs::path cache = environment_path("XDG_CACHE_HOME"); !cache.empty()) return cache / "distattn" / name;
  const fs::path home = environment_path("HOME");
  return home.empty() ? fs::path() : home / ".cache" / "distattn" / name;
}

void require_calibration_folder() {
  const fs::path path = calibration_file();
  if (path.empty()) {
    throw Error(ErrorKind::environment,
                "cannot store the calibration (neither XDG_CACHE_HOME nor HOME names a folder) set one of them");
  }
  const fs::path folder = path.parent_path();
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (!failure && ::access(folder.c_str(), W_OK) != 0) failure.assign(errno, std::generic_category());
  if (failure) {
    throw Error(ErrorKind::environment, fmt::format("cannot store the calibration in {} ({}) set XDG_CACHE_HOME to a "
                                                    "folder that you may write to",
                                                    folder.string(), failure.message()));
  }
}

void store_calibration(const Machine& machine) {
  require_calibration_folder();
  write_file(calibration_file(), to_json(machine));
}

Machine nominal_machine() {
  Machine machine = machine_from_json(*embedded_file(nominal_file), std::string(nominal_file));
  const HostResources host = host_resources();
  machine.cores = host.cores();
  machine.ranks_per_node = machine.cores;
  if (const std::int64_t bytes = host.memory_bytes(); bytes < HostResources::unlimited) machine.memory_bytes = bytes;
  return machine;
}

Machine stored_or_nominal_machine() {
  const fs::path path = calibration_file();
  std::ifstream file(path, std::ios::binary);
  if (path.empty() || !file) return nominal_machine();
  std::ostringstream text;
  text << file.rdbuf();
  try {
    return machine_from_json(text.str(), path.string());
  } catch (const Error& error) {
    const std::string what = error.what();
    throw Error(error.kind(), fmt::format("the stored calibration cannot be used ({}: {}) measure anew with distattn "
                                          "bench --calibrate, or delete the file",
                                          path.string(), what.substr(0, what.find(" ("))));
  }
}

std::string describe_age(const Machine& machine) {
  if (machine.measured.empty())
    return machine.name == "this" ? "nominal figures, never measured here" : "described, not measured";
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const double hours = std::difftime(now, time_of(machine.measured)) / 3600;
  if (hours < 1) return "measured here less than an hour ago";
  if (hours < 1.5) return "measured here an hour ago";
  if (hours < 48) return fmt::format("measured here {:.0f} hours ago", hours);
  return fmt::format("measured here {:.0f} days ago", hours / 24);
}

}  // namespace distattn

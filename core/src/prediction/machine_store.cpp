#include "core/src/prediction/machine_store.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>

#include "core/src/embedded.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"
#include "distattn/host_resources.hpp"

namespace distattn {

namespace fs = std::filesystem;

namespace {

fs::path environment_path(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value == '/' ? fs::path(value) : fs::path();
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && *name != '\0' ? name : "host";
}

/// Of a stored description: thousands of times what a calibration writes.
constexpr std::uintmax_t most_bytes = 1 << 24;

/// Waits for nothing: what is no file is refused, as is what cannot be read.
std::string stored_text(const fs::path& path) {
  if (!fs::is_regular_file(path)) refuse("it is not a regular file");
  const std::uintmax_t bytes = fs::file_size(path);
  if (bytes == 0) refuse("it is empty");
  if (bytes > most_bytes) refuse("it is longer than any calibration");
  if (::access(path.c_str(), R_OK) != 0) refuse(fmt::format("it cannot be read: {}", std::strerror(errno)));
  return read_file(path);
}

/// Seconds since the epoch of "2026-02-03T04:05:06Z", or 0.
std::time_t time_of(const std::string& utc) {
  std::tm parts{};
  const char* end = ::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return end != nullptr && *end == '\0' ? ::timegm(&parts) : 0;
}

}  // namespace

// Homes are shared by machines that are not alike.
std::string calibration_name(std::string_view host, int cores) {
  std::string name(host);
  const auto is_odd = [](unsigned char c) { return c >= 0x80 || (std::isalnum(c) == 0 && c != '-' && c != '.'); };
  std::replace_if(name.begin(), name.end(), is_odd, '_');
  return fmt::format("machine-{}-{}.json", name, cores);
}

fs::path calibration_file() {
  const std::string name = calibration_name(host_name(), usable_cores());
  if (const fs::path cache = environment_path("XDG_CACHE_HOME"); !cache.empty()) return cache / "distattn" / name;
  const fs::path home = environment_path("HOME");
  return home.empty() ? fs::path() : home / ".cache" / "distattn" / name;
}

Machine nominal_machine() {
  Machine machine = machine_from_json(*embedded_file(nominal_file), std::string(nominal_file));
  const HostResources host = host_resources();
  machine.cores = host.cores();
  machine.ranks_per_node = machine.cores;
  if (const std::int64_t bytes = host.memory_bytes(); bytes < HostResources::unlimited) machine.memory_bytes = bytes;
  return machine;
}

StoredCalibration stored_calibration() {
  const fs::path path = calibration_file();
  struct stat status {};
  // Where this user may not even look, nobody stored one for them.
  if (path.empty() || ::lstat(path.c_str(), &status) != 0) return {};
  try {
    Machine machine = machine_from_json(stored_text(path), "it");
    if (machine.name == "it") machine.name = "this";
    return {std::move(machine), ""};
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return {std::nullopt, fmt::format("the stored calibration is not used ({}: {}): measure anew with "
                                      "distattn bench --calibrate, or delete it",
                                      path.string(), what.substr(0, what.find(" (")))};
  }
}

Machine stored_or_nominal_machine() {
  StoredCalibration stored = stored_calibration();
  return stored.machine ? *std::move(stored.machine) : nominal_machine();
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

#include "config_path.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <system_error>

#include "distattn/error.hpp"
#include "distattn/io.hpp"
#include "option.hpp"
#include "values.hpp"

namespace distattn::cli {
namespace {

constexpr std::size_t most_bytes = 1 << 20;

/// A file without a name, which lives as long as the process.
std::string path_of(const std::string& text) {
  const int fd = ::memfd_create("options", MFD_CLOEXEC);
  if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw Error(ErrorKind::environment, "--config (the system keeps nothing that comes through a pipe): name a file");
  }
  return fmt::format("/proc/self/fd/{}", fd);
}

void wait_as_asked(const App& root) {
  const Option* const timeout = root.chosen() == nullptr ? nullptr : root.chosen()->find_option("--timeout");
  if (timeout != nullptr && timeout->count() > 0) wait_for_pipes(parse_number("--timeout", timeout->text()));
}

}  // namespace

std::string config_path(const std::string& path, const App& root) {
  std::error_code unknown;
  const auto status = std::filesystem::status(not_empty("--config", path), unknown);
  if (std::filesystem::is_directory(status)) refuse(fmt::format("--config {} (a folder): name a TOML file", path));
  if (!std::filesystem::is_fifo(status)) return path;
  static std::map<std::string, std::string> read;  // the path is asked for again and again, the pipe has all once
  const auto known = read.find(path);
  if (known != read.end()) return known->second;
  wait_as_asked(root);
  return read.emplace(path, path_of(read_file_or_pipe(path, most_bytes))).first->second;
}

}  // namespace distattn::cli

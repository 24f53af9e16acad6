#include "cli/terminal/output.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "cli/terminal/standard_streams.hpp"
#include "cli/terminal/terminal.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::cli {
namespace {

constexpr int schema_version = 1;

bool prints_here = true;

}  // namespace

Json versioned_object() { return {{"schema_version", schema_version}}; }

void print_here(bool here) { prints_here = here; }

void print(std::string_view text) { print_data(fitted(text, columns_of_lines(results_descriptor()))); }

void print_data(std::string_view text) {
  if (!prints_here) return;
  const int fd = results_descriptor();
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(index(written));
    } else if (errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      throw Error(ErrorKind::environment,
                  fmt::format("cannot write to standard output ({}): send it elsewhere", std::strerror(errno)));
    }
  }
}

std::string json_text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }
void print_json(const Json& json) { print_data(json_text(json)); }

}  // namespace distattn::cli

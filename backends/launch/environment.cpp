#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <numeric>

#include <fmt/ranges.h>

#include "backends/launch/launcher.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::launch {
namespace {

constexpr int spare_ports = 8, last_port = 65535;

void check_port(const std::string& name, int port) {
  if (port >= 1 && port <= last_port) return;
  throw Error(ErrorKind::environment,
              fmt::format("{}={} is not a port (they count from 1 to {}): name a free one", name, port, last_port));
}

}  // namespace

std::optional<std::string> process_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

bool is_empty(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr && *value == '\0';
}

std::optional<int> number_in(const Variables& variables, const std::string& name) {
  const auto text = variables(name);
  if (!text) return std::nullopt;
  int number = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < 0) {
    throw Error(ErrorKind::environment,
                fmt::format("{}={} (a whole number, 0 or more, is expected): correct it", name, *text));
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
      fmt::format("{} ranks are asked for (by {} come {}): leave out their number, start as many, or take bootstrap "
                  "inproc for threads of each process",
                  asked, launcher, started));
}

std::string lacking(const Variables& variables, std::initializer_list<const char*> names) {
  std::vector<std::string> unset, empty;
  for (const char* name : names) {
    if (!variables(name)) (is_empty(name) ? empty : unset).emplace_back(name);
  }
  const auto say = [](const std::vector<std::string>& which, const char* what) {
    if (which.empty()) return std::string();
    return fmt::format("{} {} {}", fmt::join(which, ", "), which.size() == 1 ? "is" : "are", what);
  };
  return say(unset, "not set") + (unset.empty() || empty.empty() ? "" : ", ") + say(empty, "empty");
}

std::vector<int> ports_of(const Variables& variables, const std::string& name, int usual) {
  const auto own = own_port(variables);
  const int first = own.value_or(usual), last = own ? first : std::min(first + spare_ports - 1, last_port);
  check_port(own ? "DISTATTN_PORT" : name, first);
  std::vector<int> ports(index(last - first + 1));
  std::iota(ports.begin(), ports.end(), first);
  return ports;
}

int port_for(const std::string& run) {
  constexpr std::size_t first_port = 20000, range = 10000;
  return static_cast<int>(first_port + std::hash<std::string>()(run) % range);
}

}  // namespace distattn::backends::launch

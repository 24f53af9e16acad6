#include "launch_options.hpp"

#include <fmt/format.h>

#include "distattn/error.hpp"
#include "distattn/registry.hpp"
#include "option.hpp"
#include "values.hpp"

namespace distattn::cli {
namespace {

constexpr std::int64_t most_threads = 4096;

/// A registered name of that kind that is usable here.
std::string usable(BackendKind kind, std::string_view option, std::string_view name) {
  std::string known;
  for (const BackendInfo& info : list_backends()) {
    if (info.kind != kind) continue;
    if (info.name != name) {
      known += (known.empty() ? "" : ", ") + info.name;
    } else if (info.usable) {
      return info.name;
    } else {
      throw Error(ErrorKind::environment,
                  fmt::format("{} {} cannot be used here ({}) see distattn info for others", option, name, info.why));
    }
  }
  refuse(fmt::format("{} {} (unknown) choose one of {}", option, name, known));
}

}  // namespace

void add_launch_options(CLI::App& app, LaunchOptions& options) {
  const auto of_kind = [](BackendKind kind) {
    return [kind](std::string_view option, std::string_view text) { return usable(kind, option, text); };
  };
  const auto parse_threads = [](std::string_view option, std::string_view text) {
    return static_cast<int>(within(option, parse_size(option, text), 1, most_threads));
  };
  const auto parse_timeout = [](std::string_view option, std::string_view text) {
    const double seconds = parse_number(option, text);
    if (seconds <= 0) refuse(fmt::format("{} {} (nothing is that fast) give seconds above 0", option, text));
    return seconds;
  };
  add_value(app, "--backend", options.backend, of_kind(BackendKind::device), "What computes (default: best usable)",
            "NAME");
  add_value(app, "--transport", options.transport, of_kind(BackendKind::transport),
            "What carries messages (default: best usable)", "NAME");
  add_value(app, "--bootstrap", options.bootstrap, of_kind(BackendKind::bootstrap),
            "How ranks find each other (default: from the environment)", "NAME");
  add_value(app, "--threads", options.threads, parse_threads, "Threads a rank computes with (default: cores / ranks)",
            "N");
  add_value(app, "--timeout", options.timeout_s, parse_timeout,
            "Longest time without progress of an awaited rank (default 60)", "SECONDS");
}

}  // namespace distattn::cli

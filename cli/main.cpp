/// distattn: parses the command line, runs one command, and turns errors into exit codes.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <new>
#include <string>
#include <system_error>

#include "cli/command.hpp"
#include "cli/exit_code.hpp"
#include "cli/help/help_text.hpp"
#include "cli/options/config_file.hpp"
#include "cli/options/option.hpp"
#include "cli/stack.hpp"
#include "cli/terminal/console.hpp"
#include "cli/terminal/interruption.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/standard_streams.hpp"
#include "cli/tools/text_writer.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/launch.hpp"
#include "distattn/registry.hpp"
#include "distattn/thread.hpp"
#include "distattn/version.hpp"

namespace distattn::cli {
namespace {

/// What --version prints: the program and the packages that it was built with, one a line.
std::string version_text() {
  std::string text = fmt::format("distattn {} ({})", version(), commit());
  for (const BackendInfo& info : built_backends()) {
    if (!info.version.empty()) text += fmt::format("\n{}: {}", info.name, info.version);
  }
  return text;
}

/// Whether a word of the command line, "--seq=64" or "-n3", names an option.
bool has_option(const App& app, const std::string& word) {
  const std::string name = word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
  return name.starts_with('-') && app.find_option(name) != nullptr;
}

/// Reads the command line. Ranks that a launcher started have the same, and the first one says what is wrong with it:
/// others say it where the launcher does not end them with that one, as with options of their own.
Parsed parse(App& root, int argc, char** argv, bool speaks) {
  const auto refused = [&] {
    if (!speaks) give_way(usage_exit);
  };
  try {
    Parsed parsed = root.parse(argc, argv);
    if (parsed.kind == Parsed::Kind::refused) refused();
    return parsed;
  } catch (const Error&) {
    refused();
    throw;
  }
}

/// A command line that names nothing to run, in our words. Help and version are no errors.
int report_parse(const App& root, const Parsed& parsed) {
  const App& app = root.chosen() == nullptr ? root : *root.chosen();
  if (parsed.kind == Parsed::Kind::help || parsed.kind == Parsed::Kind::help_all) {
    const auto extent = parsed.kind == Parsed::Kind::help ? HelpExtent::daily : HelpExtent::all;
    print(help_text(root, app, extent, columns_of_help()));
    return 0;
  }
  if (parsed.kind == Parsed::Kind::version) {
    print(version_text() + "\n");
    return 0;
  }
  const std::string name = &app == &root ? "distattn" : "distattn " + app.get_name();
  const auto extras = root.remaining();
  std::string problem = parsed.why;
  if (&app == &root) {
    problem =
        extras.empty() ? "no command is given (one is needed)" : fmt::format("{} (not a command)", extras.front());
  } else if (!extras.empty()) {
    const std::string& extra = extras.front();
    if (has_option(app, extra)) {  // behind the command it would have been read
      print_error(fmt::format("{} (it stands before the command): write it behind: {} {}", extra, name, extra));
      return usage_exit;
    }
    problem = fmt::format("{} (not an option of {})", extra, name);
  }
  print_error(fmt::format("{}: see {} --help", problem, name));
  return usage_exit;
}

int run(int argc, char** argv) {
  App root("Exact attention over sharded sequences: planned, proved, run and checked.", "distattn");
  root.add_version("--version");
  bool quiet = false, verbose = false;
  auto* const quiet_flag = root.add_flag("-q,--quiet", quiet, "No progress and no notes on stderr", Group::output);
  root.add_flag("-v,--verbose", verbose, "More notes on stderr", Group::output)->excludes(quiet_flag);
  const auto find_config = [&root](const std::string& path) { return config_path(path, root); };
  root.add_config("--config", find_config, read_config, "Options from a TOML file; the command line wins",
                  Group::input);
  const std::vector<Command> commands = {
      add_run_command(root),  add_validate_command(root),   add_plan_command(root),
      add_show_command(root), add_bench_command(root),      add_step_command(root),
      add_info_command(root), add_completion_command(root), add_manual_command(root)};
  const bool speaks = rank_in_environment() == 0;
  print_here(speaks);
  const Parsed parsed = parse(root, argc, argv, speaks);
  if (parsed.kind != Parsed::Kind::command) return report_parse(root, parsed);
  set_verbosity(quiet || !speaks ? Verbosity::quiet : verbose ? Verbosity::verbose : Verbosity::normal);
  for (const Command& command : commands) {
    if (command.app == root.chosen()) return static_cast<int>(command.run());
  }
  return usage_exit;
}

int report(const std::string& message, int code) {
  let_interruption_end();
  print_error(message);
  return code;
}

/// In short words: there is no room for long ones, or for asking the system much.
std::string out_of_memory() {
  constexpr std::int64_t little = std::int64_t{64} << 20;
  const std::int64_t left = host_resources().process_free_bytes;
  if (left >= little) return "out of memory (an allocation was refused): choose a smaller problem";
  return fmt::format("out of memory (ulimit -v or -d leaves {} KiB): raise that limit, or choose a smaller problem",
                     left >> 10);
}

int run_reporting_errors(int argc, char** argv) {
  try {
    watch_for_interruption();
    return run(argc, argv);
  } catch (const Error& error) {
    return report(error.what(), exit_code(error.kind()));
  } catch (const std::bad_alloc&) {
    return report(out_of_memory(), environment_exit);
  } catch (const std::exception& error) {
    return report(fmt::format("{} (from the system): see distattn info for what is usable here", error.what()),
                  environment_exit);
  }
}

int run_on_enough_stack(int argc, char** argv) {
  leave_openmp_place();  // before threads are started, which would share it
  hold_standard_streams();
  set_standard_output(results_descriptor());
  try {
    return with_enough_stack([=] { return run_reporting_errors(argc, argv); });
  } catch (const Error& error) {
    return report(error.what(), exit_code(error.kind()));
  }
}

}  // namespace
}  // namespace distattn::cli

int main(int argc, char** argv) {
  const int code = distattn::cli::run_on_enough_stack(argc, argv);
  if (code != 0 && distattn::calls_left_behind() > 0) {
    std::fflush(nullptr);
    ::_exit(code);
  }
  return code;
}

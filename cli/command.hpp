#pragma once
/// The subcommands: each adds its options to the command line and says what to do when it was chosen.

#include <functional>
#include <memory>

namespace CLI {
class App;
}

namespace distattn::cli {

/// What the process ends with (cli/main.cpp maps errors to the others).
enum class Outcome : int { fine = 0, wrong_result = 1 };

/// A subcommand and what it does once the command line was parsed. Errors are thrown.
struct Command {
  CLI::App* app = nullptr;
  std::function<Outcome()> run;
};

Command add_bench_command(CLI::App& root);
Command add_completion_command(CLI::App& root);
Command add_info_command(CLI::App& root);
Command add_manual_command(CLI::App& root);
Command add_plan_command(CLI::App& root);
Command add_run_command(CLI::App& root);
Command add_show_command(CLI::App& root);
Command add_validate_command(CLI::App& root);
Command add_step_command(CLI::App& root);

}  // namespace distattn::cli

#pragma once
/// The subcommands: each adds its options to the command line and says what to do when it was chosen.

#include <functional>
#include <memory>
#include <string>

namespace distattn::cli {

class App;

/// What the process ends with (cli/main.cpp maps errors to the others).
enum class Outcome : int { fine = 0, wrong_result = 1 };

/// A subcommand and what it does once the command line was parsed. Errors are thrown.
struct Command {
  App* app = nullptr;
  std::function<Outcome()> run;
};

/// What `step` alone loads: the name of its BLAS and the file that is found under it here, if one is; or why there is
/// no step.
struct StepLibrary {
  std::string name, file, why_not;
};
StepLibrary step_library();

Command add_bench_command(App& root);
Command add_completion_command(App& root);
Command add_info_command(App& root);
Command add_manual_command(App& root);
Command add_plan_command(App& root);
Command add_run_command(App& root);
Command add_show_command(App& root);
Command add_validate_command(App& root);
Command add_step_command(App& root);

}  // namespace distattn::cli

#include "cli/command.hpp"
#include "cli/options/app.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {

StepLibrary step_library() { return {"", "", DISTATTN_WHY_NOT_STEP}; }

Command add_step_command(App& root) {
  auto* const app = root.add_subcommand("step", "Training steps of a sharded decoder (not built)");
  app->take_everything();  // whatever it is given, the reason is what counts
  return {app, []() -> Outcome {
            throw Error(ErrorKind::environment,
                        "step is not built (" DISTATTN_WHY_NOT_STEP "): configure distattn again with a BLAS");
          }};
}

}  // namespace distattn::cli

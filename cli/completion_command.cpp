/// distattn completion bash|zsh|fish.

#include "command.hpp"
#include "completion_scripts.hpp"
#include "option.hpp"
#include "output.hpp"
#include "values.hpp"

namespace distattn::cli {
namespace {

struct Shell {
  std::string_view name;
  std::string (*script)(const std::vector<CommandEntry>&);
};

constexpr Shell shells[] = {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}};
constexpr std::string_view shell_names[] = {shells[0].name, shells[1].name, shells[2].name};

}  // namespace

Command add_completion_command(App& root) {
  auto* const app = root.add_subcommand("completion", "A completion script for a shell");
  const auto shell = std::make_shared<std::string>();
  app->add_text(
         "shell", [shell](const std::string& name) { *shell = name; }, "Which shell", one_of(shell_names),
         Group::output)
      ->required();
  return {app, [&root, shell] {
            print_data(shells[parse_word("shell", *shell, shell_names)].script(option_tree(root)));
            return Outcome::fine;
          }};
}

}  // namespace distattn::cli

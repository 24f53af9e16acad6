#include "cli/help/option_tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/options/app.hpp"

namespace distattn::cli {
namespace {

OptionEntry entry_of(const Option& option) {
  OptionEntry entry{{}, "", {}, option.values().between, false, option.get_description(), option.place()};
  for (const std::string& name : option.short_names()) entry.names.push_back("-" + name);
  for (const std::string& name : option.long_names()) entry.names.push_back("--" + name);
  if (!option.takes_value()) return entry;
  const OptionChoices choices = option.values().choices ? option.values().choices() : OptionChoices();
  entry.value = option.values().text;
  if (entry.value.empty()) entry.value = text_of(choices, entry.between);
  entry.takes_file = choices.empty();
  for (const OptionChoice& choice : choices) {
    entry.takes_file |= choice.is_file;
    entry.words.insert(entry.words.end(), choice.words.begin(), choice.words.end());
  }
  return entry;
}

CommandEntry entry_of(const App& app, const std::string& name) {
  CommandEntry entry{name, app.get_description(), {}};
  for (const Option* option : app.get_options()) entry.options.push_back(entry_of(*option));
  return entry;
}

}  // namespace

std::string term_of(const OptionEntry& option) {
  const std::string names = fmt::format("{}", fmt::join(option.names, ","));
  return names + (names.empty() || option.value.empty() ? "" : " ") + option.value;
}

std::vector<OptionEntry> options_below(Group heading, const CommandEntry& command) {
  std::vector<OptionEntry> options;
  for (const OptionEntry& option : command.options) {
    if (option.place.group == heading) options.push_back(option);
  }
  return options;
}

std::vector<CommandEntry> option_tree(const App& root) {
  std::vector<CommandEntry> tree = {entry_of(root, "")};
  for (const App* app : root.subcommands()) tree.push_back(entry_of(*app, app->get_name()));
  return tree;
}

}  // namespace distattn::cli

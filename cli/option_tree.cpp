#include "option_tree.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "app.hpp"

namespace distattn::cli {
namespace {

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-' || c == '+';
  });
}

std::vector<std::string> split(std::string_view text, char between) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(between);
    parts.emplace_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// "a|b|c" or "a|b|c[,...]" as its words, without those that stand for something else ("file:PATH"); nothing where it
/// may be a file, which shells complete by themselves.
std::vector<std::string> choices_of(const std::string& value) {
  std::vector<std::string> choices = split(value.substr(0, value.find("[,")), '|');
  if (choices.size() < 2 || value.find("FILE") != value.npos) return {};
  std::erase_if(choices, [](const std::string& choice) { return !is_word(choice); });
  return choices;
}

OptionEntry entry_of(const Option& option) {
  OptionEntry entry;
  for (const std::string& name : option.short_names()) entry.names.push_back("-" + name);
  for (const std::string& name : option.long_names()) entry.names.push_back("--" + name);
  if (option.takes_value()) {
    entry.choices = choices_of(option.get_type_name());
    entry.value = entry.names.empty() ? option.get_name() : option.get_type_name();
    if (entry.value.empty()) entry.value = "VALUE";
  }
  entry.description = option.get_description();
  return entry;
}

CommandEntry entry_of(const App& app, const std::string& name) {
  CommandEntry entry{name, app.get_description(), {}};
  for (const Option* option : app.get_options()) entry.options.push_back(entry_of(*option));
  return entry;
}

}  // namespace

std::vector<CommandEntry> option_tree(const App& root) {
  std::vector<CommandEntry> tree = {entry_of(root, "")};
  for (const App* app : root.subcommands()) tree.push_back(entry_of(*app, app->get_name()));
  return tree;
}

}  // namespace distattn::cli

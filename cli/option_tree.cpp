#include "option_tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "app.hpp"

namespace distattn::cli {
namespace {

std::vector<std::string> split(std::string_view text, char between) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(between);
    parts.emplace_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_capital(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }

/// What can be typed of a form: up to the first capital, which stands for something else. "usp:" of "usp:U", nothing of
/// "FILE".
std::string typed(std::string_view form) {
  return std::string(form.begin(), std::find_if(form.begin(), form.end(), is_capital));
}

/// The words of a form: "burst" and "burst:zigzag" of "burst[:zigzag]".
void append_words(const std::string& form, std::vector<std::string>& words) {
  const std::size_t open = form.find('[');
  const std::string name = form.substr(0, open);
  words.push_back(typed(name));
  if (open == form.npos || words.back() != name) return;  // after what a capital stands for nothing can be offered
  for (const std::string& argument : split(form.substr(open + 2, form.size() - open - 3), '|'))
    words.push_back(typed(name + form[open + 1] + argument));
}

std::vector<std::string> words_of(const std::vector<std::string>& forms) {
  std::vector<std::string> words;
  for (const std::string& form : forms) append_words(form, words);
  std::erase_if(words, [](const std::string& word) { return word.empty(); });
  return words;
}

OptionEntry entry_of(const Option& option) {
  OptionEntry entry{{}, "", {}, option.values().between, false, option.get_description(), option.place()};
  for (const std::string& name : option.short_names()) entry.names.push_back("-" + name);
  for (const std::string& name : option.long_names()) entry.names.push_back("--" + name);
  if (!option.takes_value()) return entry;
  const std::vector<std::string> forms = option.values().forms ? option.values().forms() : std::vector<std::string>();
  entry.choices = words_of(forms);
  entry.value = option.values().text;
  if (entry.value.empty())
    entry.value = fmt::format("{}{}", fmt::join(forms, "|"), entry.between.empty() ? "" : "[,...]");
  entry.takes_file = forms.empty() || entry.value.find("FILE") != entry.value.npos;
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

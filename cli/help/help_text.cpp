#include "cli/help/help_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/help/option_tree.hpp"
#include "cli/options/app.hpp"
#include "cli/terminal/standard_streams.hpp"
#include "cli/terminal/terminal.hpp"
#include "distattn/index.hpp"

namespace distattn::cli {
namespace {

constexpr std::size_t usual_columns = 80, most_columns = 120;

/// Paragraphs, and terms next to what they mean.
class Page {
 public:
  explicit Page(std::size_t columns) : columns_(std::max<std::size_t>(columns, 1)) {}

  void paragraph(const std::string& text) {
    for (const std::string& line : wrapped(text, columns_)) text_ += line + "\n";
  }
  void blank() { text_ += "\n"; }

  /// The meaning stands below a term that is too long, and wherever there is little room.
  void entry(const std::string& term, const std::string& meaning) {
    const std::size_t column = columns_ < 60 ? std::min<std::size_t>(6, columns_ / 4) : 24;
    const std::size_t indent = std::min<std::size_t>(2, columns_ / 8);
    std::vector<std::string> lines;
    for (const std::string& line : wrapped(term, columns_ - indent)) lines.push_back(std::string(indent, ' ') + line);
    bool below = lines.size() > 1 || columns_of(lines.back()) + 2 > column;
    for (const std::string& line : wrapped(meaning, columns_ - column)) {
      if (below) lines.emplace_back();
      lines.back().resize(column, ' ');
      lines.back() += line;
      below = true;
    }
    for (const std::string& line : lines) text_ += line + "\n";
  }
  std::string text() && { return std::move(text_); }

 private:
  std::size_t columns_;
  std::string text_;
};

bool is_shown(const OptionEntry& option, HelpExtent extent) { return extent == HelpExtent::all || !option.place.rare; }

void add_groups(Page& page, const CommandEntry& command, HelpExtent extent) {
  for (std::size_t group = 0; group < group_names.size(); ++group) {
    std::vector<OptionEntry> options = options_below(static_cast<Group>(group), command);
    std::erase_if(options, [&](const OptionEntry& option) { return !is_shown(option, extent); });
    if (options.empty()) continue;
    page.blank();
    page.paragraph(fmt::format("{}:", group_names[group]));
    for (const OptionEntry& option : options) page.entry(term_of(option), option.description);
  }
}

/// "completion bash|zsh|fish" with what has no name, which is needed.
std::string usage_of(const CommandEntry& command) {
  std::string words = command.name.empty() ? "COMMAND" : command.name;
  for (const OptionEntry& option : command.options) {
    if (option.names.empty()) words += " " + option.value;
  }
  return fmt::format("usage: distattn {} [OPTIONS]", words);
}

void add_command(Page& page, const CommandEntry& command, HelpExtent extent) {
  page.paragraph(command.description);
  page.paragraph(usage_of(command));
  add_groups(page, command, extent);
}

std::size_t count_rare(const CommandEntry& command) {
  return index(std::count_if(command.options.begin(), command.options.end(),
                             [](const OptionEntry& option) { return option.place.rare; }));
}

void add_root(Page& page, const std::vector<CommandEntry>& tree, HelpExtent extent) {
  const CommandEntry& root = tree.front();
  page.paragraph(root.description);
  page.paragraph(usage_of(root));
  page.blank();
  page.paragraph("commands:");
  std::size_t more = count_rare(root);
  for (std::size_t i = 1; i < tree.size(); ++i) {
    page.entry(tree[i].name, tree[i].description);
    more += tree[i].options.size();
  }
  add_groups(page, root, extent);
  page.blank();
  if (extent == HelpExtent::daily) {
    page.paragraph("distattn COMMAND --help shows the options of a command.");
    page.paragraph(fmt::format("distattn --help-all shows {} more options: those of every command.", more));
    return;
  }
  for (std::size_t i = 1; i < tree.size(); ++i) {
    page.blank();
    add_command(page, tree[i], extent);
  }
}

/// "-q,--quiet, --config FILE": what the root has for every command.
std::string common_terms(const CommandEntry& root) {
  std::vector<std::string> terms;
  for (const OptionEntry& option : root.options) {
    const std::string& name = option.names.back();
    if (!name.starts_with("--help") && name != "--version") terms.push_back(term_of(option));
  }
  return fmt::format("{}", fmt::join(terms, ", "));
}

}  // namespace

std::string help_text(const App& root, const App& command, HelpExtent extent, std::size_t columns) {
  const std::vector<CommandEntry> tree = option_tree(root);
  Page page(columns);
  if (&command == &root) {
    add_root(page, tree, extent);
    return std::move(page).text();
  }
  const CommandEntry& shown = *std::find_if(tree.begin() + 1, tree.end(),
                                            [&](const CommandEntry& each) { return each.name == command.get_name(); });
  add_command(page, shown, extent);
  page.blank();
  page.paragraph(fmt::format("Every command also takes {}.", common_terms(tree.front())));
  if (extent == HelpExtent::daily)
    page.paragraph(fmt::format("distattn {} --help-all shows {} more options.", shown.name, count_rare(shown)));
  return std::move(page).text();
}

std::size_t columns_of_help() {
  const int fd = results_descriptor();
  return is_terminal(fd) ? std::min(columns_of_terminal(fd), most_columns) : usual_columns;
}

}  // namespace distattn::cli

#include "config_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

constexpr std::string_view blanks = " \t\r";
constexpr std::string_view bare = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
constexpr std::string_view unquoted = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.";

/// One line of the file, read from left to right.
class Line {
 public:
  Line(std::string_view text, int number) : text_(text), number_(number) {}

  [[noreturn]] void fail(std::string_view why) const {
    refuse(fmt::format("--config, line {} ({}) write TOML, a line each: name = value", number_, why));
  }
  bool accept(char c) {
    skip_blanks();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("a '{}' is missing", c));
  }
  bool at_end() {
    skip_blanks();
    return text_.empty() || text_.front() == '#';
  }
  std::string word(std::string_view letters, std::string_view what) {
    skip_blanks();
    const std::size_t length = std::min(text_.find_first_not_of(letters), text_.size());
    if (length == 0) fail(fmt::format("{} is missing", what));
    const std::string taken(text_.substr(0, length));
    text_.remove_prefix(length);
    return taken;
  }
  std::string value() {
    for (const char quote : {'"', '\''}) {
      if (!accept(quote)) continue;
      const std::size_t length = text_.find(quote);
      if (length == text_.npos) fail("a quote is not closed");
      const std::string_view taken = text_.substr(0, length);
      if (quote == '"' && taken.find('\\') != taken.npos) fail("escapes are not read; use single quotes");
      text_.remove_prefix(length + 1);
      return std::string(taken);
    }
    return number_or_word(word(unquoted, "a value"));
  }
  /// A value, or a list of them: joined with commas, as on the command line.
  std::string values() {
    if (!accept('[')) return value();
    std::string joined;
    while (!accept(']')) {
      joined += (joined.empty() ? "" : ",") + value();
      if (!accept(',')) {
        expect(']');
        break;
      }
    }
    return joined;
  }

 private:
  /// TOML has underscores between digits.
  static std::string number_or_word(std::string text) {
    if (begins_number(text.front())) std::erase(text, '_');
    return text;
  }
  static bool begins_number(char c) { return c == '+' || c == '-' || ('0' <= c && c <= '9'); }
  void skip_blanks() { text_.remove_prefix(std::min(text_.find_first_not_of(blanks), text_.size())); }

  std::string_view text_;
  int number_;
};

/// By its long name, or by its short one.
bool has_option(const CLI::App& app, const std::string& key) {
  return app.get_option_no_throw("--" + key) != nullptr ||
         (key.size() == 1 && app.get_option_no_throw("-" + key) != nullptr);
}

bool is_command(const CLI::App& root, const std::string& name) {
  return !root.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; }).empty();
}

}  // namespace

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream& input) const {
  const auto parsed = root_.get_subcommands();
  const CLI::App* const command = parsed.empty() ? &root_ : parsed.front();
  std::vector<CLI::ConfigItem> found;
  std::set<std::string> keys;
  std::string table, text;
  for (int number = 1; std::getline(input, text); ++number) {
    Line line(text, number);
    if (line.at_end()) continue;
    if (line.accept('[')) {
      table = line.word(bare, "a command's name");
      line.expect(']');
      if (!line.at_end()) line.fail("something follows the table's name");
      if (!is_command(root_, table)) line.fail(fmt::format("no command is called {}", table));
      continue;
    }
    std::string key = line.word(bare, "a name"), of = table;
    if (table.empty() && line.accept('.')) of = std::exchange(key, line.word(bare, "a name"));
    if (of != table && !is_command(root_, of)) line.fail(fmt::format("no command is called {}", of));
    line.expect('=');
    const std::string value = line.values();
    if (!line.at_end()) line.fail("something follows the value");
    if (!of.empty() && of != command->get_name()) continue;
    if (!keys.insert(key).second) line.fail(fmt::format("{} is given twice", key));
    const bool of_command = has_option(*command, key);
    if (!of_command && !has_option(root_, key)) {
      line.fail(fmt::format("{} is not an option of {}", key, command->get_name()));
    }
    found.emplace_back();
    if (of_command) found.back().parents = {command->get_name()};
    found.back().name = key;
    found.back().inputs = {value};
  }
  return found;
}

}  // namespace distattn::cli

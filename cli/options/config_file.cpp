#include "cli/options/config_file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <istream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/options/app.hpp"
#include "cli/options/option.hpp"
#include "cli/options/values.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"
#include "distattn/index.hpp"

namespace distattn::cli {
namespace {

constexpr std::size_t most_bytes = 1 << 20;

/// A file without a name, which lives as long as the process.
std::string path_of(const std::string& text) {
  const int fd = ::memfd_create("options", MFD_CLOEXEC);
  if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw Error(ErrorKind::environment, "--config (the system keeps nothing that comes through a pipe): name a file");
  }
  return fmt::format("/proc/self/fd/{}", fd);
}

void wait_as_asked(const App& root) {
  const Option* const timeout = root.chosen() == nullptr ? nullptr : root.chosen()->find_option("--timeout");
  if (timeout != nullptr && timeout->count() > 0) wait_for_pipes(parse_number("--timeout", timeout->text()));
}

[[noreturn]] void fail(const toml::source_region& where, std::string_view why,
                       std::string_view suggestion = "write TOML: name = value, text in quotes") {
  refuse(fmt::format("--config, line {} ({}): {}", where.begin.line, why, suggestion));
}

/// All of it: options are short, and a device may never end.
std::string text_of(std::istream& input) {
  std::string text(most_bytes + 1, '\0');
  input.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(index(input.gcount()));
  if (input.bad()) refuse("--config (reading the file failed): name a readable one");
  if (text.size() > most_bytes) refuse("--config (the file is longer than 1 MiB): name one of options");
  return text;
}

toml::table parsed(std::istream& input) {
  try {
    return toml::parse(text_of(input));
  } catch (const toml::parse_error& error) {
    fail(error.source(), error.description());
  }
}

/// As the command line has it.
std::string text_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) {
    // The name of a file would end there.
    if (text->find('\0') != text->npos) fail(node.source(), "an option holds no zero byte", "leave it out");
    return *text;
  }
  if (const auto whole = node.value_exact<std::int64_t>()) return fmt::to_string(*whole);
  if (const auto number = node.value_exact<double>()) return fmt::to_string(*number);
  if (const auto truth = node.value_exact<bool>()) return *truth ? "true" : "false";
  fail(node.source(), "an option takes text, a number, true, false, or a list of these");
}

/// Lists are joined with commas.
std::string option_text(const toml::node& node) {
  const toml::array* const list = node.as_array();
  if (list == nullptr) return text_of(node);
  std::string joined;
  for (const toml::node& each : *list) joined += (joined.empty() ? "" : ",") + text_of(each);
  return joined;
}

/// By its long name, or by its short one; null where there is none.
const Option* find_option(const App& app, const std::string& key) {
  const Option* const found = app.find_option("--" + key);
  return found != nullptr || key.size() != 1 ? found : app.find_option("-" + key);
}

const App* find_command(const App& root, const std::string& name) {
  const auto commands = root.subcommands();
  const auto found =
      std::find_if(commands.begin(), commands.end(), [&](const App* each) { return each->get_name() == name; });
  return found == commands.end() ? nullptr : *found;
}

/// What the file says to a command.
class Items {
 public:
  Items(const App& root, const App& command) : root_(root), command_(command) {}

  void add(const toml::key& key, const toml::node& value) {
    const std::string name(key.str());
    if (!keys_.insert(name).second) fail(key.source(), fmt::format("{} is given twice", name), "keep one");
    const Option* option = find_option(command_, name);
    const bool of_command = option != nullptr;
    if (!of_command) option = find_option(root_, name);
    if (option == nullptr) {
      fail(key.source(), fmt::format("{} is not an option of {}", name, command_.get_name()),
           "write it below the [command] that has it");
    }
    if (!option->stands_in_files()) {
      fail(key.source(), fmt::format("{} is an option of the command line alone", name), "leave it out");
    }
    if (!option->takes_value() && !value.is_boolean())
      fail(key.source(), fmt::format("{} is true or false", name), "choose one");
    found_.push_back({of_command, name, option_text(value)});
  }
  std::vector<ConfigItem> take() { return std::move(found_); }

 private:
  const App &root_, &command_;
  std::set<std::string> keys_;
  std::vector<ConfigItem> found_;
};

}  // namespace

std::vector<ConfigItem> read_config(std::istream& input, const App& root) {
  const App* const chosen = root.chosen();
  const App& command = chosen == nullptr ? root : *chosen;
  const toml::table file = parsed(input);
  Items found(root, command);
  for (const auto& [key, value] : file) {
    const toml::table* const table = value.as_table();
    if (table == nullptr) {
      found.add(key, value);
      continue;
    }
    const std::string name(key.str());
    const App* const named = find_command(root, name);
    if (named == nullptr) fail(key.source(), fmt::format("no command is called {}", name), "see distattn --help");
    Items others(root, *named);  // a misspelt option is noticed whichever command runs
    for (const auto& [option, given] : *table) (named == &command ? found : others).add(option, given);
  }
  return found.take();
}

std::string config_path(const std::string& path, const App& root) {
  std::error_code unknown;
  const auto status = std::filesystem::status(not_empty("--config", path), unknown);
  if (unknown) refuse(fmt::format("--config {} ({}): name a TOML file", path, unknown.message()));
  if (std::filesystem::is_directory(status)) refuse(fmt::format("--config {} (a folder): name a TOML file", path));
  if (!std::filesystem::is_fifo(status)) return path;
  static std::map<std::string, std::string> read;  // the path is asked for again and again, the pipe has all once
  const auto known = read.find(path);
  if (known != read.end()) return known->second;
  wait_as_asked(root);
  return read.emplace(path, path_of(read_file_or_pipe(path, most_bytes))).first->second;
}

}  // namespace distattn::cli

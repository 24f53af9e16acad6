#pragma once
/// The command line's commands and options. CLI11 reads them, in app.cpp alone: its headers take seconds to compile.

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/options/option_help.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace distattn::cli {

/// An option, a flag (an option without a value) or an argument of a command, which owns it.
class Option {
 public:
  Option(CLI::Option& parsed, std::string description, Values values, Place place)
      : parsed_(&parsed), description_(std::move(description)), values_(std::move(values)), place_(place) {}

  /// The long name if there is one, with its dashes: "--seq", "-n".
  std::string get_name() const;
  /// Without dashes.
  std::vector<std::string> short_names() const;
  std::vector<std::string> long_names() const;
  const std::string& get_description() const { return description_; }
  const Values& values() const { return values_; }
  Place place() const { return place_; }
  bool asks_for_help() const;
  /// Whether a file of options may say it.
  bool stands_in_files() const;
  bool takes_value() const;
  /// How often it was given.
  std::size_t count() const;
  /// What it was given; empty where it was not.
  std::string text() const;

  Option* description(const std::string& text);
  Option* required();
  Option* excludes(Option* other);
  Option* needs(Option* other);
  /// Takes needs() back.
  Option* needs_no_more(Option* other);

 private:
  friend class App;
  CLI::Option* parsed_;
  std::string description_;
  Values values_;
  Place place_;
};

/// What a file of options says to an option, by its long name or one letter.
struct ConfigItem {
  bool of_command = false;  ///< else of all commands
  std::string name, text;
};

class App;
/// Reads a file of options for the command line `root`, where the command that runs is known. Throws Error(usage).
using ReadConfig = std::function<std::vector<ConfigItem>(std::istream&, const App& root)>;

/// What became of a command line.
struct Parsed {
  enum class Kind { command, help, help_all, version, refused } kind = Kind::command;
  std::string why;  ///< of a refusal, in CLI11's words, and the reason
};

/// A command, or the root of them, whose options count for all.
class App {
 public:
  /// The root; `name` is the program's.
  App(const std::string& description, const std::string& name);
  ~App();
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  App* add_subcommand(const std::string& name, const std::string& description);
  /// true or false; anything else is refused.
  Option* add_flag(const std::string& names, bool& into, const std::string& description, Place place);
  Option* add_flag(const std::string& names, const std::function<void(bool)>& take, const std::string& description,
                   Place place);
  /// An option with a value, or an argument where `names` has no dashes.
  Option* add_text(const std::string& names, const std::function<void(const std::string&)>& take,
                   const std::string& description, Values values, Place place);
  /// An option that may be given several times: `take` gets all its values, in their order.
  Option* add_texts(const std::string& names, const std::function<void(const std::vector<std::string>&)>& take,
                    const std::string& description, Values values, Place place);
  /// An option whose value may be left out: then it takes an empty text.
  Option* add_optional_text(const std::string& names, std::function<void(const std::string&)> take,
                            const std::string& description, Values values, Place place);
  void add_version(const std::string& name);
  /// A file of options; `find` says of a path which one to read, as often as it is asked.
  Option* add_config(const std::string& name, std::function<std::string(const std::string&)> find, ReadConfig read,
                     const std::string& description, Place place);
  /// Takes whatever follows, known or not.
  void take_everything();

  std::string get_name() const;
  std::string get_description() const;
  /// In the order in which they were added, --help and --help-all first.
  std::vector<Option*> get_options() const;
  /// Null where there is none.
  Option* find_option(const std::string& name) const;
  /// One that is there.
  Option* get_option(const std::string& name) const;
  void remove_option(Option* option);
  std::size_t count(const std::string& option) const { return get_option(option)->count(); }
  std::vector<App*> subcommands() const;
  /// The subcommand of the command line that was parsed, or null.
  App* chosen() const;
  /// Words of the command line that nothing took.
  std::vector<std::string> remaining() const;

  /// Parses for the root. Options that take text may throw, and what they throw passes.
  Parsed parse(int argc, char** argv);

 private:
  App(App& root, CLI::App& parsed);
  Option* own(CLI::Option* option, const std::string& description, Values values, Place place);
  void own_help();

  std::unique_ptr<CLI::App> owned_;  ///< of the root alone
  CLI::App* parsed_;
  std::vector<std::unique_ptr<App>> subcommands_;
  std::vector<std::unique_ptr<Option>> options_;
};

}  // namespace distattn::cli

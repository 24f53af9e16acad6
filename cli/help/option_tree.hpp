#pragma once
/// The command line as data: what the manual and the completions are written from.

#include <string>
#include <vector>

#include "cli/options/option_help.hpp"

namespace distattn::cli {

class App;

struct OptionEntry {
  std::vector<std::string> names;  ///< with dashes, short ones first; empty for a positional argument
  std::string value;               ///< what it takes, as help shows it; empty for a flag
  std::vector<std::string> words;  ///< that it takes, where they can be listed, as OptionChoice::words
  std::string between;             ///< what separates several of them: ","
  bool takes_file = false;
  std::string description;
  Place place;
};

struct CommandEntry {
  std::string name;  ///< empty for the options of all commands
  std::string description;
  std::vector<OptionEntry> options;
};

/// The root first, then its subcommands, in the order of help.
std::vector<CommandEntry> option_tree(const App& root);

/// "-n,--runs N", as help shows it.
std::string term_of(const OptionEntry& option);
/// Those of `command` below a heading, in their order.
std::vector<OptionEntry> options_below(Group heading, const CommandEntry& command);

}  // namespace distattn::cli

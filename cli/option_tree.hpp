#pragma once
/// The command line as data: what the manual and the completions are written from.

#include <string>
#include <vector>

namespace distattn::cli {

class App;

struct OptionEntry {
  std::vector<std::string> names;    ///< with dashes, short ones first; empty for a positional argument
  std::string value;                 ///< what it takes, as help shows it; empty for a flag
  std::vector<std::string> choices;  ///< the words that it takes, where help lists them ("a|b|c")
  std::string description;
};

struct CommandEntry {
  std::string name;  ///< empty for the options of all commands
  std::string description;
  std::vector<OptionEntry> options;
};

/// The root first, then its subcommands, in the order of help; nothing that help hides.
std::vector<CommandEntry> option_tree(const App& root);

}  // namespace distattn::cli

#pragma once
/// Completion scripts, written from the options that the program has.

#include <string>
#include <vector>

#include "option_tree.hpp"

namespace distattn::cli {

std::string bash_completion(const std::vector<CommandEntry>& tree);
std::string zsh_completion(const std::vector<CommandEntry>& tree);
std::string fish_completion(const std::vector<CommandEntry>& tree);

}  // namespace distattn::cli

#pragma once
/// --config FILE: options as TOML, "name = value" by their long names.

#include <iosfwd>
#include <string>
#include <vector>

#include "cli/options/app.hpp"

namespace distattn::cli {

/// Keys before the first table count for whatever command runs, those under [run], or as run.key, only for `distattn
/// run`. Strings, numbers, booleans and lists of them; anything else, an unknown or a repeated key is refused with its
/// line.
std::vector<ConfigItem> read_config(std::istream& input, const App& root);

/// The path itself, or, of a pipe, that of all that comes through it, which is waited for as long as the --timeout of
/// the command. Refuses what can be no file of options; whether it is one, reading it shows.
std::string config_path(const std::string& path, const App& root);

}  // namespace distattn::cli

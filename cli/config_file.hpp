#pragma once
/// --config FILE: options as TOML, "name = value" by their long names.

#include <iosfwd>
#include <vector>

#include "app.hpp"

namespace distattn::cli {

/// Keys before the first table count for whatever command runs, those under [run], or as run.key, only for `distattn
/// run`. Strings, numbers, booleans and lists of them; anything else, an unknown or a repeated key is refused with its
/// line.
std::vector<ConfigItem> read_config(std::istream& input, const App& root);

}  // namespace distattn::cli

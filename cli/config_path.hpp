#pragma once
/// Where the file of options is read from.

#include <string>

#include "app.hpp"

namespace distattn::cli {

/// The path itself, or, of a pipe, that of all that comes through it, which is waited for as long as the --timeout of
/// the command. Refuses what can be no file of options; whether it is one, reading it shows.
std::string config_path(const std::string& path, const App& root);

}  // namespace distattn::cli

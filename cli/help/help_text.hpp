#pragma once
/// What --help and --help-all print.

#include <string>

namespace distattn::cli {

class App;

/// Whether options that are rarely needed are shown.
enum class HelpExtent : bool { daily, all };

/// The help of `command`, which may be `root`, in lines of at most `columns`. All of the root is all of every command.
std::string help_text(const App& root, const App& command, HelpExtent extent, std::size_t columns);

/// Columns for text to read: a terminal's, but not so many that lines get too long for that; 80 elsewhere.
std::size_t columns_of_help();

}  // namespace distattn::cli

#pragma once
/// What --version prints.

#include <string>

namespace distattn::cli {

/// The program's version and commit, then one line for each package that it was built with.
std::string version_text();

}  // namespace distattn::cli

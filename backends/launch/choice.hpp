#pragma once
/// Which of the launchers around a process started it, and what follows from that.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/launch/launcher.hpp"

namespace distattn::backends::launch {

/// What one way of being started says about this process.
struct Candidate {
  std::string bootstrap;
  std::string why;             ///< it is this one, or what it lacks
  std::optional<Place> place;  ///< nothing: it did not start this process; a size of 0: known when the ranks have met
  std::optional<Error> wrong;  ///< it did, and its variables make no sense
};

/// In the order in which they count, up to those that did not start this process either; nobody is the last.
std::vector<Candidate> candidates(const Launchers& launchers, const Variables& variables);

/// The first that started this process; "inproc" where none did, or one that started it alone. Throws what is wrong
/// with it, and Error(environment) where this is one of several processes that cannot find each other.
Candidate choose(const Launchers& launchers, const Variables& variables);
/// The same before what a launcher of one process means.
Candidate started_by(const Launchers& launchers, const Variables& variables);

/// Variables that candidates() looks at and that are set, in order; secrets by their length.
std::vector<std::pair<std::string, std::string>> seen_variables(const Launchers& launchers, const Variables& variables);

}  // namespace distattn::backends::launch

#pragma once
/// Variables in which those who start processes number them.

#include <optional>
#include <string>
#include <vector>

#include "backends/launch/launcher.hpp"

namespace distattn::backends::launch {

/// Empty names: it has no such variable.
struct RankVariables {
  const char* who;  ///< sets them
  const char *rank, *size, *local_rank, *local_size;
};

/// Of whoever numbered this process among several, or says that it is alone: the first whose rank and size are set, but
/// RANK of WORLD_SIZE=1 only where nobody else says several.
/// Throws Error(environment) for a number that is none, or a rank where the size is not above it.
struct Numbered {
  const RankVariables* by = nullptr;
  Place place;  ///< local_size 0: not said
};
std::optional<Numbered> numbered(const Variables& variables);

/// "RANK=1 is set, but WORLD_SIZE is not": what may be one of several processes, of which nothing says how many they
/// are. Empty where there is no such number.
std::string rank_without_size(const Variables& variables);

/// Of all that may number processes, each once.
std::vector<std::string> rank_variable_names();

/// "RANK=1 of WORLD_SIZE=2".
std::string words_for(const Numbered& numbered);

}  // namespace distattn::backends::launch

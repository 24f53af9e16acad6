#pragma once
/// Quantities as people read them.

#include <string>

#include "distattn/export.h"

namespace distattn DISTATTN_API {

/// "1.50 MiB"; "–" for what is not known.
std::string bytes_in_words(double bytes);
/// "12.300 ms"; "–" for what is not known.
std::string seconds_in_words(double seconds);

}  // namespace distattn

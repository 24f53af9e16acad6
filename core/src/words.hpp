#pragma once
/// Formats quantities for people.

#include <string>

namespace distattn {

/// "1.50 MiB"; "–" if unknown (NaN).
std::string bytes_in_words(double bytes);
/// "12.300 ms"; "–" if unknown (NaN).
std::string seconds_in_words(double seconds);

}  // namespace distattn

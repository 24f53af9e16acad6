#pragma once
/// Quantities as people read them.

#include <string>

#pragma GCC visibility push(default)
namespace distattn {

/// "1.50 MiB"; "–" for what is not known.
std::string bytes_in_words(double bytes);
/// "12.300 ms"; "–" for what is not known.
std::string seconds_in_words(double seconds);

}  // namespace distattn
#pragma GCC visibility pop

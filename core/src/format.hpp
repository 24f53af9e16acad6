#pragma once
/// Formats quantities for people.

#include <string>

namespace distattn {

/// "1.50 MiB"; "–" if unknown (NaN).
std::string format_bytes(double bytes);
/// "12.300 ms"; "–" if unknown (NaN).
std::string format_seconds(double seconds);

}  // namespace distattn

#pragma once
/// How much memory this process may still take, so that what cannot fit is refused before anything is allocated.

#include <string_view>

namespace distattn::cli {

/// Bytes that are free for this process: the least of what the machine has free and what limits allow.
double available_memory();

/// Throws Error(environment) that says how much `what` needs when that is more than available_memory().
void require_memory(double bytes, std::string_view what);

}  // namespace distattn::cli

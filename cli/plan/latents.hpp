#pragma once
/// Keys and values that are a product of a latent, as those of MLA, and may be sent as such.

#include <string_view>

#include "distattn/problem.hpp"
#include "distattn/simulate.hpp"

namespace distattn::cli {

/// "512+64", or "512". Throws Error(usage).
Latents parse_latents(std::string_view option, std::string_view text);

/// Throws Error(usage) if the problem's keys cannot be made of them.
void check(const Latents& latents, const Problem& problem);

}  // namespace distattn::cli

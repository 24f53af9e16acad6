#pragma once
/// Keys and values that are a product of a latent, as those of MLA: what it costs to send latents and expand them where
/// they arrive, instead of expanding them first. Bytes against FLOPs.

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/rows/plan.hpp"
#include "distattn/machine.hpp"
#include "distattn/plan.hpp"

namespace distattn::cli {

/// Of a token, all key heads together: `expanded` numbers that a matrix makes keys and values of, and `taken` numbers
/// that every key ends with as they are (MLA's rotated ones). DeepSeek-V3: 512+64.
struct Latents {
  int expanded = 0, taken = 0;
};

/// "512+64", or "512". Throws Error(usage).
Latents parse_latents(std::string_view option, std::string_view text);

/// Throws Error(usage) if the problem's keys cannot be made of them.
void check(const Latents& latents, const Problem& problem);

/// A rank expands the latents that it receives. In a backward pass it also makes gradients of latents, and its part of
/// that of the matrix, of the gradients of keys and values: three products.
LatentFigures with_latents(const AttentionPlan& plan, Pass pass, const Latents& latents, const Machine& machine,
                           int threads);

}  // namespace distattn::cli

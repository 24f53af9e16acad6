#include "cli/plan/latents.hpp"

#include <fmt/format.h>

#include <limits>

#include "cli/options/values.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {

Latents parse_latents(std::string_view option, std::string_view text) {
  const std::size_t plus = text.find('+');
  const auto number = [&](std::string_view part) {
    return static_cast<int>(within(option, parse_size(option, part), 1, std::numeric_limits<std::int32_t>::max()));
  };
  return {number(text.substr(0, plus)), plus == text.npos ? 0 : number(text.substr(plus + 1))};
}

void check(const Latents& latents, const Problem& problem) {
  if (problem.shared_kv)
    refuse("--latents with --shared-kv (absorbed keys are latents already: nothing is expanded): leave one out");
  if (latents.taken < problem.head_dim) return;
  refuse(
      fmt::format("--latents {}+{} for keys of {} (those end with {} numbers of the latent as they are): give less "
                  "than {} behind the plus",
                  latents.expanded, latents.taken, problem.head_dim, latents.taken, problem.head_dim));
}

}  // namespace distattn::cli

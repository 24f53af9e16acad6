#include "cli/plan/latents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cli/options/values.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

/// A rank's messages and products.
struct RankFigures {
  double bytes_sent = 0, flops = 0;
};

RankFigures rank_figures(const Outline& outline, const RankProgram& program, std::int64_t bytes_sent,
                         const Latents& latents) {
  const Problem& problem = outline.sharding.problem;
  const auto tokens_of = [&](const Value& value) {
    return static_cast<double>(problem.batch * outline.sharding.keys[index(value.segment)].run.count);
  };
  const int made = problem.head_dim - latents.taken + problem.value_dim;
  const int products = outline.pass == Pass::forward ? 1 : 3;
  RankFigures figures{static_cast<double>(bytes_sent), 0};
  for (const Step& step : program.steps) {
    for (const Op& op : step.ops) {
      if (const auto* const send = std::get_if<Send>(&op)) {
        const auto& [value, dtype, bytes, slot] = program.buffers[index(send->source)];
        if (!is_key_side(value.kind)) continue;
        figures.bytes_sent -= static_cast<double>(message_bytes(outline, value, dtype));
        figures.bytes_sent +=
            tokens_of(value) * (latents.expanded + latents.taken) * static_cast<double>(size_of(dtype));
      } else if (const auto* const receive = std::get_if<Recv>(&op)) {
        const Value& value = program.buffers[index(receive->into)].value;
        if (value.kind != ValueKind::key_value) continue;
        const int heads = outline.sharding.groups[index(value.group)].kv_count;
        figures.flops += products * 2.0 * tokens_of(value) * latents.expanded * heads * made;
      }
    }
  }
  return figures;
}

}  // namespace

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

LatentFigures with_latents(const AttentionPlan& plan, Pass pass, const Latents& latents, const Machine& machine,
                           int threads) {
  const Outline& outline = plan.outline(pass);
  LatentFigures most;
  for (Rank rank = 0; rank < plan.ranks(); ++rank) {
    const RankFigures figures =
        rank_figures(outline, plan.program(pass, rank), plan.counts(pass).bytes_sent[index(rank)], latents);
    most.bytes_sent = std::max(most.bytes_sent, figures.bytes_sent);
    most.flops = std::max(most.flops, figures.flops);
  }
  constexpr double largest_side = 1 << 20;
  const double rate = machine.rates_of(outline.sharding.problem.dtype, Pass::forward).full.at(largest_side);
  most.predicted_s = most.flops / rate / (machine.cores > 0 ? threads : 1);
  return most;
}

}  // namespace distattn::cli

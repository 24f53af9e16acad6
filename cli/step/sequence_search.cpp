#include "cli/step/sequence_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "distattn/plan.hpp"
#include "distattn/table.hpp"

namespace distattn::step {
namespace {

/// Adds each rank's buffers of a pass.
void add_buffer_bytes(const StepSetting& setting, const Recipe& recipe, const std::shared_ptr<const Tiles>& tiles,
                      Pass pass, std::vector<double>& by_rank) {
  const Routes routes{setting.attention.node_size.value_or(0), setting.attention.ahead.value_or(0)};
  const Lowering lowering(recipe.name, tiles, recipe.table(tiles, routes.node_size), pass,
                          setting.attention.mode.value_or(recipe.mode), routes);
  for (Rank rank = 0; rank < setting.ranks; ++rank) {
    const RankProgram program = lowering.program(rank);
    double& bytes = by_rank[index(rank)];
    bytes = std::accumulate(program.slots.begin(), program.slots.end(), bytes);
  }
}

}  // namespace

SequenceSearch::SequenceSearch(StepSetting setting, const Machine& machine)
    : setting_(std::move(setting)),
      machine_(machine),
      room_(static_cast<double>(memory_of_rank(setting_, machine)) - static_cast<double>(state_bytes(setting_))) {}

/// Every length is placed anew.
std::optional<SequenceSearch::Attention> SequenceSearch::count_placed(const Problem& problem) const {
  ScheduleRequest request = setting_.attention;
  request.layout.clear();
  request.machine = machine_;
  const Planned planned = plan(problem, setting_.ranks, request);
  const auto* const made = std::get_if<AttentionPlan>(&planned);
  if (made == nullptr) return {};
  return Attention{static_cast<double>(most_tokens(made->outline(Pass::forward).sharding)),
                   static_cast<double>(made->memory_bytes())};
}

std::optional<SequenceSearch::Attention> SequenceSearch::count(std::int64_t tokens) const {
  StepSetting setting = setting_;
  setting.sequence = tokens * setting.ranks;
  if (setting.mask_at) setting.mask = *setting.mask_at(setting.sequence);
  const Problem problem = attention_problem_of(setting);
  if (setting.attention.schedule == "placed") return count_placed(problem);
  const auto resolved = resolve_pair(setting.attention.schedule, problem, setting.ranks);
  if (std::holds_alternative<std::string>(resolved)) return {};
  const RecipePair& pair = std::get<RecipePair>(resolved);
  const auto tiles_of = [&](const Recipe& recipe) {
    return std::make_shared<const Tiles>(shard(problem, setting.ranks, recipe.layout, recipe.groups));
  };
  const auto forward = tiles_of(pair.forward);
  std::vector<double> bytes(index(setting.ranks));
  add_buffer_bytes(setting, pair.forward, forward, Pass::forward, bytes);
  add_buffer_bytes(setting, pair.backward, tiles_of(pair.backward), Pass::backward, bytes);
  return Attention{static_cast<double>(most_tokens(forward->sharding())),
                   *std::max_element(bytes.begin(), bytes.end())};
}

const std::optional<SequenceSearch::Attention>& SequenceSearch::counted(std::int64_t tokens) {
  const auto found = counted_.find(tokens);
  if (found != counted_.end()) return found->second;
  std::optional<Attention> attention;
  try {
    attention = count(tokens);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
  }
  return counted_.emplace(tokens, attention).first->second;
}

std::optional<std::int64_t> SequenceSearch::longest(const CheckpointPolicy& policy) {
  if (setting_.mask_at && !setting_.mask_at(setting_.sequence)) return {};
  if (room_ <= 0) return 0;
  const double of_a_token = activation_memory(setting_, policy, static_cast<double>(setting_.batch), machine_);
  // Bytes grow nearly in a straight line, so that the line through the last two lengths leads to the next. There are
  // lengths like the one that was asked for: those that are refused are too short below it (a prefix is longer), too
  // long above.
  constexpr int enough = 16;
  const std::int64_t asked = (setting_.sequence + setting_.ranks - 1) / setting_.ranks;
  constexpr std::int64_t most_positions = std::numeric_limits<std::int32_t>::max();
  std::int64_t longest = 0, short_of = 0, too_long = most_positions / setting_.ranks + 1;
  std::int64_t tokens = asked;
  double last_tokens = 0, last_bytes = 0;
  for (int tried = 0; too_long - short_of > 1; ++tried) {
    tokens = std::clamp(tokens, short_of + 1, too_long - 1);
    const std::optional<Attention>& attention = counted(tokens);
    if (!attention) {
      (tokens < asked ? short_of : too_long) = tokens;
      tokens = short_of + (too_long - short_of) / 2;
      continue;
    }
    const auto here = static_cast<double>(tokens);
    const double needed = of_a_token * attention->tokens + attention->buffer_bytes;
    if (needed > room_) {
      too_long = tokens;
    } else {
      longest = short_of = tokens;
      // A longer sequence has more activations and no smaller buffers.
      const double most = (room_ - attention->buffer_bytes) / of_a_token;
      if (most < static_cast<double>(too_long)) too_long = std::min(too_long, static_cast<std::int64_t>(most) + 1);
    }
    const double next = here + (room_ - needed) * (here - last_tokens) / (needed - last_bytes);
    const bool straight = tried < enough && needed != last_bytes && std::isfinite(next);
    tokens = straight ? static_cast<std::int64_t>(std::clamp(next, 0.0, static_cast<double>(too_long)))
                      : short_of + (too_long - short_of) / 2;
    last_tokens = here;
    last_bytes = needed;
  }
  return longest * setting_.ranks;
}

}  // namespace distattn::step

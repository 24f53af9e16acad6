#include "cli/tools/page/rank_data.hpp"

#include <algorithm>

namespace distattn {

using Json = nlohmann::ordered_json;

RankData::RankData(const Schedule& schedule)
    : schedule_(schedule), contents_(schedule), totals_(schedule.ranks.size()) {
  for (Rank rank = 0; rank < static_cast<Rank>(totals_.size()); ++rank) count(rank);
}

void RankData::count(Rank rank) {
  const RankProgram& program = schedule_.ranks[index(rank)];
  RankTotals& totals = totals_[index(rank)];
  for (const std::size_t bytes : program.slots) totals.memory_bytes += static_cast<std::int64_t>(bytes);
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    const auto id = static_cast<StepId>(s);
    for (const DrawnTile& tile : contents_.tiles(rank, id)) {
      ++totals.tiles;
      totals.pairs += tile.pairs;
    }
    for (const DrawnMessage& message : contents_.messages(rank, id)) {
      ++messages_;
      values_ += static_cast<std::int64_t>(message.values.size());
      (program.steps[s].lane == Lane::far ? totals.sent_far : totals.sent_near) += message.bytes;
      totals_[index(message.to)].received += message.bytes;
      if (size_numbers_.try_emplace(message.bytes, sizes_.size()).second) sizes_.push_back(message.bytes);
    }
  }
}

std::int64_t RankData::number_of(const Value& value) const {
  const Sharding& sharding = schedule_.outline.sharding;
  const auto segments = static_cast<std::int64_t>(std::max(sharding.queries.size(), sharding.keys.size()));
  const auto groups = static_cast<std::int64_t>(sharding.groups.size());
  const std::int64_t place = static_cast<std::int64_t>(index(value.segment)) + segments * (value.contributor + 1);
  return static_cast<std::int64_t>(value.kind) + 5 * (value.group + groups * place);
}

std::int64_t RankData::number_of(const DrawnTile& tile) const {
  const Sharding& sharding = schedule_.outline.sharding;
  const auto queries = static_cast<std::int64_t>(sharding.queries.size());
  const auto keys = static_cast<std::int64_t>(sharding.keys.size());
  const std::int64_t row = tile.query.group * queries + static_cast<std::int64_t>(index(tile.query.segment));
  return row * keys + static_cast<std::int64_t>(index(tile.key.segment));
}

Json RankData::compute_step(Rank rank, StepId id) {
  const Sharding& sharding = schedule_.outline.sharding;
  Json list = {contents_.step(rank, id).number};
  for (const DrawnTile& tile : contents_.tiles(rank, id)) {
    list.push_back(number_of(tile));
    const std::int64_t all =
        sharding.queries[index(tile.query.segment)].run.count * sharding.keys[index(tile.key.segment)].run.count;
    if (tile.pairs != all) list.push_back(-tile.pairs);
  }
  return list;
}

Json RankData::exchange_step(Rank rank, StepId id) {
  const Step& step = contents_.step(rank, id);
  Json list = {step.number, step.due - step.number};
  for (const DrawnMessage& message : contents_.messages(rank, id)) {
    Json sent = {message.to, size_numbers_.at(message.bytes)};
    for (const Value& value : message.values) sent.push_back(number_of(value));
    list.push_back(std::move(sent));
  }
  return list;
}

Json RankData::steps_of(Rank rank) {
  Json lanes = {Json::array(), Json::array(), Json::array()};
  const auto& steps = schedule_.ranks[index(rank)].steps;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const auto id = static_cast<StepId>(s);
    const Lane lane = steps[s].lane;
    lanes[index(lane)].push_back(lane == Lane::compute ? compute_step(rank, id) : exchange_step(rank, id));
  }
  return lanes;
}

}  // namespace distattn

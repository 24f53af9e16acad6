#pragma once
/// The steps of one rank and their totals, for the page.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/tools/draw/step_contents.hpp"

namespace distattn {

struct RankTotals {
  std::int64_t tiles = 0, pairs = 0, sent_near = 0, sent_far = 0, received = 0, memory_bytes = 0;
};

/// Reads the programs of a schedule, which must outlive it.
class RankData {
 public:
  explicit RankData(const Schedule& schedule);

  const std::vector<RankTotals>& totals() const { return totals_; }
  std::int64_t messages() const { return messages_; }
  std::int64_t values() const { return values_; }

  /// Three lists of steps, a lane each. compute: [number, tile, −pairs of the tile if it is not full, tile, …]; near
  /// and far: [number, due − number, [to, index into sizes(), value, …], …]. A tile is a number that counts head
  /// groups, queries and keys, a value one that counts contributors, segments, groups and kinds.
  nlohmann::ordered_json steps_of(Rank rank);
  /// Bytes of messages, each once.
  const std::vector<std::int64_t>& sizes() const { return sizes_; }

 private:
  void count(Rank rank);
  nlohmann::ordered_json compute_step(Rank rank, StepId id);
  nlohmann::ordered_json exchange_step(Rank rank, StepId id);
  std::int64_t number_of(const Value& value) const;
  std::int64_t number_of(const DrawnTile& tile) const;

  const Schedule& schedule_;
  StepContents contents_;
  std::vector<RankTotals> totals_;
  std::int64_t messages_ = 0, values_ = 0;
  std::vector<std::int64_t> sizes_;
  std::map<std::int64_t, std::size_t> size_numbers_;
};

}  // namespace distattn

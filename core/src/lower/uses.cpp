#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/src/format.hpp"
#include "core/src/lower/routing.hpp"
#include "core/src/parallel.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// The uses of one rank: a table over all values that is cleared by what it touched.
class RankUses {
 public:
  RankUses(const Tiles& tiles, const ValueIndex& values)
      : tiles_(tiles), values_(values), position_(values.size(), absent) {}

  std::vector<Use> collect(const Table& table, Rank rank) {
    std::vector<Use> uses;
    for (int step = 0; step < table.steps; ++step) {
      table.tiles(step, rank, [&](const Tile& tile) {
        if (tiles_.query(tile.query).owner != rank) touch(values_.query(tile.group, tile.query), rank, step, uses);
        if (tiles_.key(tile.key).owner != rank) touch(values_.key(tile.group, tile.key), rank, step, uses);
      });
    }
    for (const Use& use : uses) position_[index(use.value)] = absent;
    return uses;
  }

 private:
  static constexpr std::uint32_t absent = ~0u;

  void touch(std::size_t value, Rank rank, int step, std::vector<Use>& uses) {
    std::uint32_t& at = position_[value];
    if (at == absent) {
      at = static_cast<std::uint32_t>(uses.size());
      uses.push_back({static_cast<std::int32_t>(value), rank, step, step});
    }
    uses[at].last = step;
  }

  const Tiles& tiles_;
  const ValueIndex& values_;
  std::vector<std::uint32_t> position_;
};

/// What a message takes while a schedule is proved and simulated: itself, its two steps, their times.
constexpr std::int64_t bytes_of_message = 440;

/// Counts messages, one or more for each use, and refuses more than this process could keep.
class MessageLimit {
 public:
  MessageLimit(const std::string& schedule, int ranks) : schedule_(schedule), ranks_(ranks) {}

  void add(std::size_t messages) {
    if ((count_ += static_cast<std::int64_t>(messages)) <= most_) return;
    throw TooManyMessages(schedule_, ranks_,
                          fmt::format("more than {} messages (each takes {} bytes to plan, and there are {})", most_,
                                      bytes_of_message, format_bytes(static_cast<double>(memory_bytes_))));
  }

 private:
  const std::string& schedule_;
  int ranks_;
  std::int64_t memory_bytes_ = usable_memory_bytes();
  std::int64_t most_ = std::min<std::int64_t>(INT32_MAX, memory_bytes_ / bytes_of_message);
  std::atomic<std::int64_t> count_{0};
};

}  // namespace

Uses collect_uses(const std::string& name, const Tiles& tiles, const Table& table, const ValueIndex& values) {
  std::vector<std::vector<Use>> by_rank(index(tiles.ranks()));
  MessageLimit limit(name, tiles.ranks());
  for_each_rank(tiles.ranks(), [&](Rank rank) {
    auto& uses = by_rank[index(rank)];
    uses = RankUses(tiles, values).collect(table, rank);
    limit.add(uses.size());
  });
  Uses uses;
  uses.begin.assign(values.size() + 1, 0);
  for (const auto& some : by_rank) {
    for (const Use& use : some) ++uses.begin[index(use.value) + 1];
  }
  for (std::size_t v = 0; v < values.size(); ++v) uses.begin[v + 1] += uses.begin[v];
  uses.all.resize(uses.begin.back());
  std::vector<std::size_t> next = uses.begin;
  for (auto& some : by_rank) {
    for (const Use& use : some) uses.all[next[index(use.value)]++] = use;
    some = {};
  }
  return uses;
}

}  // namespace distattn

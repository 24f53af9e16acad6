#pragma once
/// The proof of one rank's program: what it does with its buffers, and what it adds to sums over all ranks.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/src/schedule/value_index.hpp"
#include "distattn/table.hpp"
#include "distattn/verify.hpp"

namespace distattn {

/// A set as the sum of its members' hashes: equal sums mean equal multisets, but for chance (2⁻⁶⁴).
struct HashSum {
  std::uint64_t hash = 0;
  std::int64_t count = 0;
  void add(std::uint64_t member, std::int64_t times = 1) {
    hash += member * static_cast<std::uint64_t>(times);
    count += times;
  }
  void add(const HashSum& other) {
    hash += other.hash;
    count += other.count;
  }
  friend bool operator==(const HashSum&, const HashSum&) = default;
};

/// splitmix64's finaliser: every bit of the result depends on every bit of x.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr std::uint64_t hash_of(int group, SegmentId query, SegmentId key) {
  return mix(mix(static_cast<std::uint64_t>(group)) ^
             (static_cast<std::uint64_t>(query) << 32 | static_cast<std::uint64_t>(key)));
}

/// A message as one side of it describes it.
struct MessageKey {
  Rank from = 0, to = 0;
  int number = 0, due = 0;
  Lane lane = Lane::near;
  DType dtype = DType::fp32;
  Value value;
  std::uint64_t gather = 0;  ///< that carries it; 0: none
  friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
};
std::uint64_t hash_of(const MessageKey& key);

/// Where a tile was computed.
struct ComputedTile {
  std::size_t result;  ///< ValueIndex number of the result it went into
  std::uint64_t hash;
  Tile tile;
  Rank rank;
  int number;
};

/// What one rank contributes to the proof.
struct RankCheck {
  std::vector<Finding> findings;
  int steps = 0;
  std::int64_t messages = 0, messages_coalesced = 0, tiles = 0;
  std::int64_t bytes_sent = 0, bytes_far = 0;
  std::int64_t peak_remote_values = 0, peak_remote_bytes = 0, memory_bytes = 0;
  std::vector<std::pair<std::size_t, HashSum>> coverage;  ///< by result: the tiles computed here
  std::vector<MessageKey> sends, receives;
  std::vector<ComputedTile> computed;
};

/// A finding whose message begins with where it was found; number −1: at no step.
Finding finding_at(FindingKind kind, Rank rank, int number, const std::string& what);

/// Walks the program in its own order. Never reads past what the program declares, however wrong it is.
RankCheck check_program(const Outline& outline, const Tiles& tiles, const ValueIndex& values, Rank rank,
                        const RankProgram& program);

}  // namespace distattn

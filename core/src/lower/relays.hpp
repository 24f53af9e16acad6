#pragma once
/// Trees along which a value that many ranks use is passed on, so that its owner need not send it to all of them.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "distattn/index.hpp"
#include "distattn/types.hpp"

namespace distattn {

/// A rank that a value goes to. `sent` and `has` are steps: when the message to it begins, and after which step it can
/// pass the value on.
struct Stop {
  Rank rank;
  int sent, has;
};

/// Who sends each value on. A value that many more ranks use than others do, such as that of sinks or of a question
/// that answers share, goes along a tree of those that have it, if its owner would send more than others. Results take
/// such a tree backward in time, so that their steps count backward too.
class Relays {
 public:
  explicit Relays(int ranks) : sent_(index(ranks), 0), busy_(index(ranks), 0) {}

  /// Counts a value and its stops. All are counted before trees are asked for.
  void note(Rank owner, std::size_t stops, std::int64_t bytes);
  /// For each stop, in order, who sends it the value: the owner, or a stop that has it by then. Sorts the stops of a
  /// tree. Which is chosen depends on what each has sent in trees so far and on when it got this value, in bytes.
  std::vector<Rank> senders(Rank owner, std::int64_t bytes, std::span<Stop> stops);

 private:
  bool grows(Rank owner, std::size_t stops) const;

  std::vector<std::int64_t> sent_;           // by rank: what it sends without trees
  std::vector<std::int64_t> busy_;           // by rank: what it has sent in trees
  std::int64_t bytes_ = 0, bytes_sent_ = 0;  // of all values: each once, and each to all its stops
};

}  // namespace distattn

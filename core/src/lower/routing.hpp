#pragma once
/// From who uses what to who sends what: the messages of one schedule (docs/mathematics.md).

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/src/schedule/value_index.hpp"
#include "distattn/lower.hpp"

namespace distattn {

/// A value that a rank uses and does not own, with the first and last table step of its tiles there.
struct Use {
  std::int32_t value;  ///< ValueIndex number
  Rank rank;
  std::int32_t first, last;
};

/// Uses by value, then by rank.
struct Uses {
  std::vector<Use> all;
  std::vector<std::size_t> begin;  ///< of each value, and one past the last
  std::span<const Use> of(std::size_t value) const {
    return {all.data() + begin[value], begin[value + 1] - begin[value]};
  }
};
/// Throws Error(usage) when the schedule `name` has more messages than memory for planning them.
Uses collect_uses(const std::string& name, const Tiles& tiles, const Table& table, const ValueIndex& values);

/// One value on its way. A result's contributor is its sender.
struct Message {
  std::int32_t value;
  Rank from, to;
  std::int32_t post, due;  ///< program steps
  bool result, far;
};

/// Table step t runs in program step t + lead.
struct Traffic {
  std::vector<Message> messages;
  int lead = 1;
};
Traffic route(const Outline& outline, const Uses& uses, const ValueIndex& values, int table_steps,
              const Routes& routes);

}  // namespace distattn

#pragma once
/// Which messages of gathered mode are exchanges of whole rows, as a library's all-gather does them.

#include <cstdint>
#include <span>
#include <vector>

#include "core/src/lower/routing.hpp"

namespace distattn {

/// One input of each member of a row, which its owner sends to all other members in one group of messages.
struct RowGather {
  std::int32_t post, due;  ///< program steps, as the messages'
  bool far;
  std::vector<Rank> members;         ///< ascending
  std::vector<std::int32_t> values;  ///< by member: ValueIndex number
  std::size_t slot_bytes;            ///< of the largest: all take as much
};

/// Of a lowering's messages, in the order in which all ranks do them. Rows of two are left out, which have nothing to
/// gain, and rows whose contributions differ so much that padding would be noticed.
std::vector<RowGather> find_gathers(const Outline& outline, const ValueIndex& values,
                                    std::span<const Message> messages);

}  // namespace distattn

#pragma once
/// A step's messages as a transport sees them: one packet per peer and direction, each a list of memory pieces.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "distattn/engine.hpp"

namespace distattn::backends {

/// The parts of all values that one step sends to, or receives from, one peer: what travels as one message.
struct Packet {
  Rank peer = 0;
  bool outgoing = false;
  std::size_t bytes = 0;
  std::span<const std::span<std::byte>> pieces;  ///< in the order of values, without the padding between parts
};

/// What a packet says of itself, or what its receiver expects it to say.
struct PacketMark {
  Pass pass = Pass::forward;
  int step = 0;
  std::uint64_t call = 0;  ///< BufferTable::call(), or as much of it as travels
  std::size_t bytes = 0;
};

/// Why rank `to`, which expects `expected`, must not take what rank `from` sends; empty if it may.
std::string disagreement(Rank from, const PacketMark& sent, Rank to, const PacketMark& expected);

/// Whether no step of its lane comes before it in the program.
bool begins_pass(const Step& step, const BufferTable& buffers);

/// Rewritten for each step; keeps its memory, so that a lane that has seen its largest step allocates no more.
class Exchange {
 public:
  /// The packets of `step`, sends first, by peer in the step's order, without those of the buffers `left_out`, which
  /// are sorted. Valid until the next call.
  std::span<Packet> collect(const Step& step, const BufferTable& buffers, std::span<const BufferId> left_out = {});

 private:
  void add(bool outgoing, Rank peer, std::span<const BufferTable::Part> parts);

  std::vector<std::span<std::byte>> pieces_;
  std::vector<Packet> packets_;
  std::vector<std::size_t> first_piece_;  // of each packet; pieces_ moves while it grows
};

}  // namespace distattn::backends

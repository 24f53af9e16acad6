#pragma once
/// From a table to programs (docs/mathematics.md): messages, merges, buffers, lifetimes. Once for all schedules.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "distattn/error.hpp"
#include "distattn/schedule.hpp"
#include "distattn/table.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// How values find their way. node_size > 0: a value enters a node once and is passed on inside it, partial results
/// merge inside a node before one leaves, and messages between nodes are posted up to `ahead` steps early.
struct Routes {
  int node_size = 0;  ///< consecutive ranks; 0, or as many as there are: one node
  int ahead = 0;      ///< steps, from 0
};

/// Of a schedule that has more messages than this process has memory to plan: others may have fewer.
class TooManyMessages : public Error {
 public:
  TooManyMessages(const std::string& schedule, int ranks, const std::string& reason)
      : Error(ErrorKind::usage, schedule + " on " + std::to_string(ranks) + " ranks has " + reason +
                                    " choose fewer ranks, or a schedule that sends fewer, such as a mesh"),
        reason_(reason) {}
  /// "more than 2000000 messages (…)", without the schedule's name.
  const std::string& reason() const noexcept { return reason_; }

 private:
  std::string reason_;
};

/// The whole exchange of one schedule, and a builder of programs rank by rank: messages are kept, tiles never, so
/// that a thousand ranks plan in seconds. program() is const and may be called from several threads.
class Lowering {
 public:
  /// Throws Error(usage) for routes below 0, and TooManyMessages.
  Lowering(std::string name, std::shared_ptr<const Tiles> tiles, Table table, Pass pass, Mode mode, Routes routes = {});
  ~Lowering();
  Lowering(Lowering&&) noexcept;

  const Outline& outline() const;
  const Tiles& tiles() const;
  RankProgram program(Rank rank) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// All programs at once.
Schedule lower(const Lowering& lowering);

}  // namespace distattn
#pragma GCC visibility pop

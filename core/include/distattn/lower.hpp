#pragma once
/// Derives programs from a table (docs/mathematics.md): messages, merges, buffers, lifetimes. One implementation serves
/// all schedules.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "distattn/error.hpp"
#include "distattn/schedule.hpp"
#include "distattn/table.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// The routes of messages. node_size > 0: a value enters a node once and is passed on inside it, partial results are
/// merged inside a node before one result leaves it, and messages between nodes are posted up to `ahead` steps early.
/// With any node_size, a value that many more ranks use than others is passed on by ranks that have it already, if its
/// owner would send more than other owners; its results are merged on their way back.
struct Routes {
  int node_size = 0;  ///< consecutive ranks that form a node; 0, or the number of ranks: one node
  int ahead = 0;      ///< in steps, at least 0
};

/// Thrown for a schedule with more messages than this process has memory to plan; other schedules may need fewer.
class TooManyMessages : public Error {
 public:
  TooManyMessages(const std::string& schedule, int ranks, const std::string& reason)
      : Error(ErrorKind::usage, schedule + " on " + std::to_string(ranks) + " ranks has " + reason +
                                    ": choose fewer ranks, or a schedule that sends fewer, such as a mesh"),
        reason_(reason) {}
  /// "more than 2000000 messages (…)", without the schedule's name.
  const std::string& reason() const noexcept { return reason_; }

 private:
  std::string reason_;
};

/// The messages of one schedule, from which programs are built rank by rank. Messages are kept, tiles are not, so that
/// a schedule of a thousand ranks is planned in seconds. program() is const and may be called from several threads.
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

/// The programs of all ranks.
Schedule lower(const Lowering& lowering);

}  // namespace distattn
#pragma GCC visibility pop

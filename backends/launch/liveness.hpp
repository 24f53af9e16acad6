#pragma once
/// Who made progress when, and who keeps whom waiting: pure bookkeeping.

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/launch/socket.hpp"
#include "distattn/index.hpp"
#include "distattn/types.hpp"

namespace distattn::backends::launch {

/// What a rank's heartbeat says.
struct Status {
  std::int32_t step = -1;      ///< of its compute lane; −1: it has not begun
  std::int32_t awaiting = -1;  ///< a rank, if it can do nothing before that has sent; −1: it works
  std::uint64_t arrivals = 0;  ///< counts steps begun and messages received
  std::int64_t leaving = 0;    ///< 1: it makes no more calls
};

class Liveness {
 public:
  Liveness(int ranks, Clock::time_point now) : ranks_(index(ranks), {{}, now}) {}

  /// A heartbeat: progress if the rank works, or something has arrived there since the last.
  void heard(Rank rank, const Status& status, Clock::time_point now);
  /// As another rank tells it.
  void told(Rank rank, const Status& status, Clock::time_point progress, Clock::time_point now);

  const Status& status(Rank rank) const { return at(rank).status; }
  Clock::time_point progress(Rank rank) const { return at(rank).progress; }
  /// When it was first heard that the rank is leaving.
  std::optional<Clock::time_point> left(Rank rank) const { return at(rank).left; }

  /// Follows who awaits whom from `rank` to one that works or is silent. A ring of ranks that await each other is
  /// nobody's fault but `rank`'s; nor is it another's where the way leads to `asking`.
  Rank culprit(Rank rank, Rank asking = -1) const;

 private:
  struct Record {
    Status status;
    Clock::time_point progress;
    std::optional<Clock::time_point> left = {};
  };
  static void update(Record& record, const Status& status, Clock::time_point now);
  const Record& at(Rank rank) const { return ranks_[index(rank)]; }

  std::vector<Record> ranks_;
};

}  // namespace distattn::backends::launch

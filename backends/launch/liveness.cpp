#include "backends/launch/liveness.hpp"

namespace distattn::backends::launch {

void Liveness::heard(Rank rank, const Status& status, Clock::time_point now) {
  Record& record = ranks_[index(rank)];
  if (status.awaiting < 0 || status.arrivals != record.status.arrivals) record.progress = now;
  update(record, status, now);
}

void Liveness::told(Rank rank, const Status& status, Clock::time_point progress, Clock::time_point now) {
  Record& record = ranks_[index(rank)];
  record.progress = progress;
  update(record, status, now);
}

void Liveness::update(Record& record, const Status& status, Clock::time_point now) {
  record.status = status;
  if (status.leaving != 0 && !record.left) record.left = now;
}

Rank Liveness::culprit(Rank rank, Rank asking) const {
  Rank at_fault = rank;
  for (std::size_t hops = 0; hops < ranks_.size(); ++hops) {
    const Rank next = at(at_fault).status.awaiting;
    if (next < 0 || next >= static_cast<Rank>(ranks_.size())) return at_fault;
    if (next == asking) return rank;
    at_fault = next;
  }
  return rank;
}

}  // namespace distattn::backends::launch

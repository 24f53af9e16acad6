#include "backends/inproc/meeting.hpp"

#include <utility>

#include "backends/peer_left.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::inproc {

std::vector<std::vector<std::byte>> Meeting::all_gather(Rank rank, std::span<const std::byte> mine) {
  std::shared_ptr<const BytesOfRanks> gathered;
  {
    std::unique_lock lock(mutex_);
    if (failure_) throw Error(*failure_);
    brought_[index(rank)].assign(mine.begin(), mine.end());
    if (++arrived_ == size()) {
      last_ = std::make_shared<const BytesOfRanks>(std::exchange(brought_, BytesOfRanks(brought_.size())));
      arrived_ = 0;
      ++held_;
      changed_.notify_all();
    } else {
      const auto is_held = [this, meeting = held_] { return held_ != meeting; };
      changed_.wait(lock, [&] { return is_held() || failure_ || left_; });
      if (failure_) throw Error(*failure_);
      if (!is_held()) throw peer_has_left(*left_, rank);
    }
    gathered = last_;  // nobody can have held another meeting: this rank was not there
  }
  return *gathered;
}

void Meeting::leave(Rank rank) {
  const std::lock_guard lock(mutex_);
  left_ = rank;
  changed_.notify_all();
}

void Meeting::abort(const Error& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = error;
  changed_.notify_all();
}

}  // namespace distattn::backends::inproc

#pragma once
/// Where the threads of one process exchange bytes outside of steps: the bootstrap between them.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "distattn/bootstrap.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::inproc {

/// One allgather at a time, shared by all ranks.
class Meeting {
 public:
  explicit Meeting(int ranks) : brought_(index(ranks)) {}

  int size() const { return static_cast<int>(brought_.size()); }
  /// Returns when all ranks have come. Throws what abort() was told first.
  std::vector<std::vector<std::byte>> all_gather(Rank rank, std::span<const std::byte> mine);
  /// Ends every meeting, now and later.
  void abort(const Error& error) noexcept;
  /// The rank comes no more: nor can another meeting be held.
  void leave(Rank rank);

 private:
  using BytesOfRanks = std::vector<std::vector<std::byte>>;

  std::mutex mutex_;
  std::condition_variable changed_;
  BytesOfRanks brought_;
  int arrived_ = 0;
  std::uint64_t held_ = 0;  // meetings so far
  std::shared_ptr<const BytesOfRanks> last_;
  std::optional<Error> failure_;
  std::optional<Rank> left_;
};

class InprocBootstrap final : public Bootstrap {
 public:
  /// `meeting` must outlive it.
  InprocBootstrap(Meeting& meeting, Rank rank) : meeting_(meeting), rank_(rank) {}

  std::string_view name() const override { return "inproc"; }
  Rank rank() const override { return rank_; }
  int size() const override { return meeting_.size(); }
  Rank local_rank() const override { return rank_; }
  int local_size() const override { return meeting_.size(); }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return meeting_.all_gather(rank_, mine);
  }
  void barrier() override { meeting_.all_gather(rank_, {}); }

 private:
  Meeting& meeting_;
  Rank rank_;
};

}  // namespace distattn::backends::inproc

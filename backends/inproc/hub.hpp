#pragma once
/// Where the threads of one process meet to exchange packets.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/exchange.hpp"
#include "backends/inproc/jitter.hpp"
#include "distattn/error.hpp"

namespace distattn::backends::inproc {

class Port;

/// A packet and the port that it belongs to.
struct Posted {
  Port* port = nullptr;
  const Packet* packet = nullptr;
};

/// Pairs the packets of ranks. A lane is in one step at a time, so between two ranks at most one packet of a lane and
/// direction is open: no queue and no tag is needed.
class Hub {
 public:
  explicit Hub(int ranks);

  int size() const { return ranks_; }
  /// Ends every exchange, now and later, with `error` of `rank`; only the first call counts.
  void abort(Rank rank, const Error& error) noexcept;
  /// The rank makes no more exchanges: those that wait for it end.
  void leave(Rank rank);
  /// The rank whose error ended all exchanges.
  std::optional<Rank> failed() const;
  /// Called with the failure of another rank, at once if that has happened; null: nobody.
  void on_failure(Rank rank, std::function<void(const Error&)> listener);

 private:
  friend class Port;
  /// How another rank says that `failure_` has ended it. With mutex_ held.
  Error ended() const;
  Posted*& waiting(Rank from, Rank to, Lane lane);

  const int ranks_;
  mutable std::mutex mutex_;      // guards everything here, and what ports say it guards
  std::vector<Posted*> waiting_;  // by lane, from, to: a packet whose partner has not come
  std::vector<Port*> ports_;
  std::vector<char> left_;  // by rank
  std::optional<Error> failure_;
  Rank failed_rank_ = 0;

  std::mutex listeners_mutex_;  // held while they are called
  bool told_ = false;           // those that listened have been called
  std::vector<std::function<void(const Error&)>> listeners_;
};

/// One lane's end of one rank. Used by one thread at a time.
class Port {
 public:
  Port(Hub& hub, Rank rank, Lane lane, std::optional<std::uint64_t> delivery_seed);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  /// Returns when all packets of the step have been copied, each by whichever of its two ranks came second. Throws
  /// Error(peer) when partners disagree or when all exchanges have been ended.
  void exchange(const Step& step, BufferTable& buffers, std::span<Packet> packets);

 private:
  friend class Hub;
  struct Pair {
    const Posted *source, *target;
  };

  void post(std::span<Packet> packets);
  PacketMark mark(const Posted& posted) const;
  void deliver(const Pair& pair);
  void wait();
  /// A rank that has left and that a packet of this step is for, or from. With the hub's mutex held.
  std::optional<Rank> partner_that_left() const;
  void withdraw();

  Hub& hub_;
  const Rank rank_;
  const Lane lane_;
  Jitter jitter_;
  const Step* step_ = nullptr;
  BufferTable* buffers_ = nullptr;
  std::vector<Posted> posted_;
  std::vector<Pair> pairs_;  // their partners came first: this thread copies

  // Guarded by the hub's mutex.
  std::condition_variable changed_;
  std::size_t open_ = 0;  // packets neither copied nor withdrawn
  std::string error_;
};

}  // namespace distattn::backends::inproc

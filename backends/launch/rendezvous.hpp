#pragma once
/// How processes that know a token and a port become ranks: rank 0 listens, the others connect and prove themselves.

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/launch/handshake.hpp"
#include "backends/launch/socket.hpp"
#include "distattn/error.hpp"
#include "distattn/types.hpp"

namespace distattn::backends::launch {

/// For those who look again and again what another process has done: each pause is twice as long as the one before.
class Backoff {
 public:
  explicit Backoff(std::chrono::milliseconds longest) : longest_(longest) {}
  void pause() {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 2, longest_);
  }

 private:
  std::chrono::milliseconds pause_{1};
  const std::chrono::milliseconds longest_;
};

/// Who a process is among the ranks.
struct Place {
  Rank rank = 0;
  int size = 1;
  Rank local_rank = 0;
  int local_size = 1;

  bool operator==(const Place&) const = default;
};

/// What rank 0 has after waiting: a connection to each other rank, by rank; and why some are missing.
struct Arrivals {
  std::vector<Socket> sockets;  ///< [0] has none
  std::optional<Error> failure;
};

/// Waits on `listener` until all other ranks have proved that they are of `run`. Whoever cannot is dropped: strangers,
/// garbage and slow writers cost a rank nothing but its place in the queue.
Arrivals await_ranks(const Socket& listener, int size, const RunKey& run, Clock::time_point deadline);

struct Endpoint {
  std::string host;
  int port = 0;
};
/// Where rank 0 may be listening, and the run, as known at this moment; asked again until a connection is made.
struct MeetingPoint {
  std::vector<Endpoint> endpoints;
  RunKey run;
  std::string unknown = {};  ///< why there are no endpoints
};

/// A connection to rank 0, which has proved that it is of this run. Throws Error(timeout) when rank 0 was not there
/// before the deadline and Error(peer) when it refuses this rank.
Socket join_ranks(const Place& place, const std::function<MeetingPoint()>& look, Clock::time_point deadline);

}  // namespace distattn::backends::launch

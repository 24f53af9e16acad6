#pragma once
/// The ranks of processes that have found each other.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backends/launch/control_channel.hpp"
#include "backends/launch/launcher.hpp"
#include "backends/launch/rendezvous.hpp"
#include "distattn/bootstrap.hpp"

namespace distattn::backends::launch {

/// Collectives and control over one channel, however the ranks were started.
class ProcessBootstrap : public Bootstrap {
 public:
  /// Rank 0: waits on `listener` for the others. When they do not all come, those that have are told why.
  ProcessBootstrap(std::string name, const Place& place, const Socket& listener, const RunKey& run, double timeout_s);
  /// Another rank: looks for rank 0.
  ProcessBootstrap(std::string name, const Place& place, const std::function<MeetingPoint()>& look, double timeout_s);

  /// A collective that finds out who shares a node, where the launcher did not say.
  void find_nodes();

  std::string_view name() const override { return name_; }
  Rank rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  Rank local_rank() const override { return place_.local_rank; }
  int local_size() const override { return place_.local_size; }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return channel_->all_gather(mine);
  }
  void barrier() override { channel_->all_gather({}); }
  Control* control() override { return channel_.get(); }

 private:
  std::string name_;
  Place place_;
  std::unique_ptr<ControlChannel> channel_;
};

/// Where rank 0 waits, when it may choose: on DISTATTN_PORT and DISTATTN_ADDRESS if they are set, else on a free port
/// and all addresses, or loopback if all ranks are on this node.
struct Listening {
  Socket socket;
  std::vector<Endpoint> endpoints;
};
Listening listen_for_ranks(bool one_node, const Variables& variables);

/// From now on.
Clock::time_point after_seconds(double seconds);

}  // namespace distattn::backends::launch

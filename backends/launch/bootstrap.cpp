#include "backends/launch/bootstrap.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "distattn/index.hpp"

namespace distattn::backends::launch {

Clock::time_point after_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Listening listen_for_ranks(bool one_node, const Variables& variables) {
  const int port = own_port(variables).value_or(0);
  std::string why;
  auto socket = listen_on(port, one_node ? Reach::this_machine : Reach::any, &why);
  if (!socket) {
    throw Error(ErrorKind::environment,
                fmt::format("rank 0 cannot listen on port {} ({}): set DISTATTN_PORT to a free one", port, why));
  }
  const auto own = variables("DISTATTN_ADDRESS");
  const std::vector<std::string> hosts = one_node ? std::vector<std::string>{"127.0.0.1"}
                                         : own    ? std::vector<std::string>{*own}
                                                  : own_addresses();
  if (hosts.empty()) {
    throw Error(ErrorKind::environment,
                "rank 0 has no address at which other machines reach it (no network is up): set DISTATTN_ADDRESS");
  }
  Listening listening{std::move(*socket), {}};
  for (const std::string& host : hosts) listening.endpoints.push_back({host, port_of(listening.socket)});
  return listening;
}

ProcessBootstrap::ProcessBootstrap(std::string name, const Place& place, const Socket& listener, const RunKey& run,
                                   double timeout_s)
    : name_(std::move(name)), place_(place) {
  Arrivals arrivals = await_ranks(listener, place.size, run, after_seconds(timeout_s));
  channel_ = std::make_unique<ControlChannel>(place.rank, place.size, std::move(arrivals.sockets), timeout_s);
  if (!arrivals.failure) return;
  channel_->abort(*arrivals.failure);
  throw *arrivals.failure;
}

ProcessBootstrap::ProcessBootstrap(std::string name, const Place& place, const std::function<MeetingPoint()>& look,
                                   double timeout_s)
    : name_(std::move(name)), place_(place) {
  std::vector<Socket> sockets;
  sockets.push_back(join_ranks(place, look, after_seconds(timeout_s)));
  channel_ = std::make_unique<ControlChannel>(place.rank, place.size, std::move(sockets), timeout_s);
}

/// A collective of all, whatever each has been told: launchers may tell some ranks more than others.
void ProcessBootstrap::find_nodes() {
  const std::string mine = node_identity();
  const auto nodes = all_gather(std::as_bytes(std::span(mine)));
  if (place_.local_size > 0) return;
  const auto own = index(place_.rank);
  place_.local_size = static_cast<int>(std::count(nodes.begin(), nodes.end(), nodes[own]));
  if (place_.local_rank > 0) return;  // said by itself
  place_.local_rank = static_cast<Rank>(std::count(nodes.begin(), nodes.begin() + place_.rank, nodes[own]));
}

}  // namespace distattn::backends::launch

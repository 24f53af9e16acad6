#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "backends/launch/control_channel.hpp"
#include "fuzz/targets.hpp"

namespace distattn::fuzz {
namespace {

using namespace backends::launch;

constexpr std::size_t ranks = 3, most_bytes = 4096;  // a socket holds more
constexpr double timeout_s = 10;

/// The two ends of a connection: the channel's, and that of a peer who says what the fuzzer wants.
std::pair<Socket, Socket> connection() {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0,
          "the system has sockets");
  return {Socket(ends[0]), Socket(ends[1])};
}

/// Says all and nothing more, and waits until the channel has read it, which then closes its end.
void say(const Socket& peer, Bytes bytes) {
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  send_all(peer, bytes, deadline);
  ::shutdown(peer.fd(), SHUT_WR);
  std::array<std::byte, 4096> heard;
  while (receive_some(peer, heard)) {
    require(Clock::now() < deadline, "the channel hears out its peer");
    pollfd entry{peer.fd(), POLLIN, 0};
    ::poll(&entry, 1, 100);
  }
}

}  // namespace

/// Rank 0, or by the first byte another rank, hears the rest of the bytes from a peer. By that byte too, it waits for a
/// collective meanwhile.
void read_control_frames(Bytes bytes) {
  if (bytes.empty() || bytes.size() > most_bytes) return;
  const Rank rank = std::to_integer<int>(bytes[0]) & 1;
  const bool gathers = (std::to_integer<int>(bytes[0]) & 2) != 0;
  std::vector<Socket> sockets(rank == 0 ? 1 : 0), peers;
  while (sockets.size() < (rank == 0 ? ranks : 1)) {
    auto [own, other] = connection();
    sockets.push_back(std::move(own));
    peers.push_back(std::move(other));
  }
  ControlChannel channel(rank, static_cast<int>(ranks), std::move(sockets), timeout_s);
  std::thread waiting;
  if (gathers) {
    waiting = std::thread([&] {
      const auto gathered = accepted([&] { return channel.all_gather({}); });
      require(!gathered || gathered->size() == ranks, "a collective brings what every rank has");
    });
  }
  say(peers.back(), bytes.subspan(1));
  const std::array<Rank, 2> others = {rank == 0 ? 1 : 0, 2};
  accepted([&] { return channel.check_any(others, Control::Clock::now()); });
  accepted([&] { return channel.check(others[0], Control::Clock::now()), true; });
  channel.abort(Error(ErrorKind::interrupted, "the run has heard enough"));
  if (gathers) waiting.join();
  peers.clear();  // so that the channel's end waits for nobody
}

}  // namespace distattn::fuzz

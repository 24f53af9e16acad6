#include "backends/launch/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fmt/core.h>

#include "backends/launch/host_names.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::launch {
namespace {

constexpr int backlog = 1024;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

/// Milliseconds for poll: rounded up, so that a deadline is not polled at full speed just before it.
int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

bool wait_for(const Socket& socket, short events, Clock::time_point deadline) {
  pollfd entry{socket.fd(), events, 0};
  while (Clock::now() < deadline) {
    if (::poll(&entry, 1, milliseconds_until(deadline)) > 0) return true;
  }
  return false;
}

void send_at_once(const Socket& socket) {
  const int on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Socket bound(int family, int port, Reach reach) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  const int on = 1, off = 0;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  int failed = 0;
  if (family == AF_INET6) {
    ::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<std::uint16_t>(port));
    failed = ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(reach == Reach::this_machine ? INADDR_LOOPBACK : INADDR_ANY);
    failed = ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  return failed == 0 && ::listen(socket.fd(), backlog) == 0 ? std::move(socket) : Socket();
}

/// No waiting helps there.
void check_files_left(int error) {
  if (error != EMFILE && error != ENFILE) return;
  throw Error(
      ErrorKind::environment,
      fmt::format("no connection to another rank can be opened ({}): raise the limit of open files, as ulimit -n "
                  "does",
                  std::strerror(error)));
}

/// Where nobody listens at a port that connections may begin from, one may begin there, and meet itself.
bool met_itself(const Socket& socket) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  return ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 && own_size == peer_size &&
         std::memcmp(&own, &peer, own_size) == 0;
}

/// 0, or why there is no connection.
int connect_before(Clock::time_point deadline, const Socket& socket, const addrinfo& host, int port) {
  sockaddr_storage at{};
  std::memcpy(&at, host.ai_addr, std::min<std::size_t>(host.ai_addrlen, sizeof at));
  in_port_t& its_port = host.ai_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                                                   : reinterpret_cast<sockaddr_in&>(at).sin_port;
  its_port = htons(static_cast<std::uint16_t>(port));
  if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&at), host.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return errno;
  }
  if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error == 0 && met_itself(socket) ? ECONNREFUSED : error;
}

/// Nothing for an address that has a meaning on one link alone.
std::optional<std::string> numeric(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN];
  const void* bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  if (address.sa_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&six)) return std::nullopt;
    bytes = &six;
  }
  if (::inet_ntop(address.sa_family, bytes, text, sizeof text) == nullptr) return std::nullopt;
  return text;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<Socket> listen_on(int port, Reach reach, std::string* why) {
  Socket socket = reach == Reach::any ? bound(AF_INET6, port, reach) : bound(AF_INET, port, reach);
  if (!socket && reach == Reach::any && errno != EADDRINUSE) socket = bound(AF_INET, port, reach);
  if (socket) return socket;
  if (errno == EADDRINUSE || errno == EACCES) {
    if (why != nullptr) *why = errno == EADDRINUSE ? "taken" : std::strerror(errno);
    return std::nullopt;
  }
  throw Error(ErrorKind::environment, fmt::format("rank 0 cannot listen on port {} ({}): set DISTATTN_PORT to another",
                                                  port, std::strerror(errno)));
}

int port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  DISTATTN_EXPECT(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::optional<Socket> accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    check_files_left(errno);
    return std::nullopt;
  }
  send_at_once(socket);
  return socket;
}

std::optional<Socket> connect_to(const std::string& host, int port, Clock::time_point deadline, std::string* why) {
  const auto say = [why](const std::string& reason) {
    if (why != nullptr) *why = reason;
  };
  std::string unknown;
  const auto addresses = look_up(host, deadline, unknown);
  if (!addresses) {
    say(unknown);
    return std::nullopt;
  }
  int left = 0;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) ++left;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next, --left) {
    const auto now = Clock::now();
    const auto share = now + (deadline - now) / left;  // one that never answers leaves time for the others
    Socket socket(::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) check_files_left(errno);
    const int error = socket ? connect_before(share, socket, *one, port) : errno;
    if (error == 0) {
      send_at_once(socket);
      return socket;
    }
    say(std::strerror(error));
  }
  return std::nullopt;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> all;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(found, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = interfaces.get(); one != nullptr; one = one->ifa_next) {
      const bool up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
      if (!up || one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      if (auto text = numeric(*one->ifa_addr)) all.push_back(*std::move(text));
    }
  }
  return all;
}

std::optional<std::size_t> send_some(const Socket& socket, std::span<const std::byte> bytes) {
  const ssize_t sent = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent >= 0) return index(sent);
  return would_block(errno) ? std::optional<std::size_t>(0) : std::nullopt;
}

std::optional<std::size_t> receive_some(const Socket& socket, std::span<std::byte> bytes) {
  const ssize_t received = ::recv(socket.fd(), bytes.data(), bytes.size(), 0);
  if (received > 0) return index(received);
  return received < 0 && would_block(errno) ? std::optional<std::size_t>(0) : std::nullopt;
}

bool closed(const Socket& socket) {
  pollfd entry{socket.fd(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

bool send_all(const Socket& socket, std::span<const std::byte> bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    if (!wait_for(socket, POLLOUT, deadline)) return false;
    const auto sent = send_some(socket, bytes);
    if (!sent) return false;
    bytes = bytes.subspan(*sent);
  }
  return true;
}

bool receive_all(const Socket& socket, std::span<std::byte> bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    if (!wait_for(socket, POLLIN, deadline)) return false;
    const auto received = receive_some(socket, bytes);
    if (!received) return false;
    bytes = bytes.subspan(*received);
  }
  return true;
}

}  // namespace distattn::backends::launch

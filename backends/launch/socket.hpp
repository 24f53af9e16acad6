#pragma once
/// TCP sockets that close themselves. All are non-blocking; functions that wait take a deadline.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/running_clock.hpp"

namespace distattn::backends::launch {

using Clock = RunningClock;

/// Owns a file descriptor; −1: none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Which peers may reach a listener.
enum class Reach : std::uint8_t { this_machine, any };

/// Listens on `port` (0: a free one). Nothing when the port is taken or not for this user, and in `why`, if given,
/// which; throws Error(environment) for other failures.
std::optional<Socket> listen_on(int port, Reach reach, std::string* why = nullptr);
int port_of(const Socket& socket);
/// The next connection, if one is waiting. Like connect_to(), throws Error(environment) when no more files may be
/// opened.
std::optional<Socket> accept_from(const Socket& listener);
/// Tries every address of `host` until one accepts; each has a share of the time. Nothing when none did before the
/// deadline, or no name server said an address, and in `why`, if given, what came of the last.
std::optional<Socket> connect_to(const std::string& host, int port, Clock::time_point deadline,
                                 std::string* why = nullptr);
/// Numeric addresses of this machine's interfaces that are up, without loopback and those of one link: IPv4, then IPv6.
std::vector<std::string> own_addresses();

/// Both return false when the peer has closed or the deadline has passed before all bytes were moved.
bool send_all(const Socket& socket, std::span<const std::byte> bytes, Clock::time_point deadline);
bool receive_all(const Socket& socket, std::span<std::byte> bytes, Clock::time_point deadline);

/// Moves what can be moved at once: how many bytes; nothing when the peer has closed or the connection failed.
std::optional<std::size_t> send_some(const Socket& socket, std::span<const std::byte> bytes);
std::optional<std::size_t> receive_some(const Socket& socket, std::span<std::byte> bytes);

/// Whether the peer has closed, whatever of what it sent is still to be read. Consumes nothing.
bool closed(const Socket& socket);

}  // namespace distattn::backends::launch

/// A host with two addresses, the first of which never answers; and one where connections begin at the port they go to.

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "backends/launch/socket.hpp"
#include "catch.hpp"

using namespace distattn::backends::launch;

namespace {

sockaddr_in address_of(const char* text, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

/// Where sockets begin, if not 0: the system may choose that port too.
int beginning = 0;

Socket made(const sockaddr_in& address, int (*use)(int, const sockaddr*, socklen_t)) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  use(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return socket;
}

}  // namespace

// Instead of the C library's, for the whole program.
extern "C" int getaddrinfo(const char*, const char*, const addrinfo*, addrinfo** found) {
  // Made once: ranks that are threads ask at the same time.
  static sockaddr_in addresses[] = {address_of("127.0.0.2", 0), address_of("127.0.0.1", 0)};
  const auto entry = [](sockaddr_in& address, addrinfo* next) {
    addrinfo made{};
    made.ai_family = AF_INET;
    made.ai_addr = reinterpret_cast<sockaddr*>(&address);
    made.ai_addrlen = sizeof address;
    made.ai_next = next;
    return made;
  };
  static addrinfo last = entry(addresses[1], nullptr), first = entry(addresses[0], &last);
  *found = &first;
  return 0;
}
extern "C" void freeaddrinfo(addrinfo*) {}
extern "C" int socket(int domain, int type, int protocol) noexcept {
  const int fd = static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
  const sockaddr_in own = address_of("127.0.0.1", beginning);
  if (beginning != 0) ::bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own);
  return fd;
}

TEST_CASE("an address that never answers leaves time for the next") {
  const Socket listener = std::move(*listen_on(0, Reach::this_machine));
  const sockaddr_in silent = address_of("127.0.0.2", port_of(listener));
  const Socket full = made(silent, ::bind);
  REQUIRE(::listen(full.fd(), 0) == 0);
  std::vector<Socket> crowd;  // takes all the places there are: who comes then is not even answered
  for (int i = 0; i < 4; ++i) crowd.push_back(made(silent, ::connect));
  CHECK(connect_to("two addresses", port_of(listener), Clock::now() + std::chrono::seconds(2)));
}

TEST_CASE("where nobody listens, a connection does not meet itself") {
  const auto port = [] { return port_of(std::move(*listen_on(0, Reach::this_machine))); }();
  std::string why;
  beginning = port;
  CHECK_FALSE(connect_to("two addresses", port, Clock::now() + std::chrono::seconds(2), &why));
  beginning = 0;
  CHECK(why == "Connection refused");
}

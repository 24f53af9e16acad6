#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/core.h>

#include "backends/launch/bootstrap.hpp"
#include "backends/launch/handshake.hpp"
#include "backends/launch/launcher.hpp"
#include "backends/launch/meeting_file.hpp"
#include "backends/launch/processes.hpp"
#include "distattn/io.hpp"

namespace distattn::backends::launch {
namespace {

/// A token that only this user's processes on this machine can read. Rank 0 writes it, holds the file locked against
/// other runs that would meet at the same port, and removes it at the end.
class TokenFile {
 public:
  explicit TokenFile(const Surroundings& run) : port_(run.ports.front()), path_(path_for(port_, run.start)) {}
  ~TokenFile() {
    name_.reset();
    remove();
  }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }

  std::string write() {
    do {
      held_ = Socket(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (!held_) fail(std::strerror(errno));
      if (::flock(held_.fd(), LOCK_EX | LOCK_NB) != 0) refuse_lock(errno);
    } while (!same_file(held_.fd(), path_));  // the run that had it has just removed it
    struct stat info {};
    if (::fstat(held_.fd(), &info) != 0 || info.st_uid != ::geteuid()) {
      held_ = Socket();
      fail("it belongs to somebody else");
    }
    std::string token = draw_token();
    const bool whole = ::fchmod(held_.fd(), 0600) == 0 && ::ftruncate(held_.fd(), 0) == 0 &&
                       ::write(held_.fd(), token.data(), token.size()) == static_cast<ssize_t>(token.size());
    if (!whole) fail(std::strerror(errno));
    name_.emplace([this] { remove(); });
    return token;
  }

  /// Empty while rank 0 has not written it, or if it is not this user's alone.
  std::string read() const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return {};
    struct stat info {};
    std::string token(256, '\0');
    const bool own = ::fstat(fd, &info) == 0 && info.st_uid == ::geteuid() && (info.st_mode & 077) == 0;
    const ssize_t got = own ? ::read(fd, token.data(), token.size()) : 0;
    ::close(fd);
    token.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return token;
  }

 private:
  void remove() const {
    if (held_ && same_file(held_.fd(), path_)) ::unlink(path_.c_str());
  }
  [[noreturn]] void fail(const char* why) {
    throw Error(ErrorKind::environment,
                fmt::format("{} cannot be written ({}) set DISTATTN_TOKEN to the same text for all ranks", path_, why));
  }
  [[noreturn]] void refuse_lock(int error) {
    held_ = Socket();
    if (error != EWOULDBLOCK) fail(std::strerror(error));
    throw Error(
        ErrorKind::environment,
        fmt::format("another run meets at port {} of this machine just now ({} is locked) give this one another "
                    "port, or each a DISTATTN_TOKEN of its own",
                    port_, path_));
  }

  static std::string path_for(int port, const std::string& start) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    const std::string own = start.empty() ? "" : fmt::format("-{:x}", std::hash<std::string>()(start));
    return (error ? std::filesystem::path("/tmp") : folder) /
           fmt::format("distattn-{}-{}{}.token", ::geteuid(), port, own);
  }

  const int port_;
  const std::string path_;
  Socket held_;                      // the open file, with the lock
  std::optional<Discardable> name_;  // to be taken away if this process is interrupted
};

Socket listen_on_first_free(const std::vector<int>& ports, Reach reach) {
  for (const int port : ports) {
    if (auto socket = listen_on(port, reach)) return std::move(*socket);
  }
  throw Error(ErrorKind::environment, fmt::format("rank 0 cannot listen on ports {} to {} (all are taken) set "
                                                  "DISTATTN_PORT to a free one",
                                                  ports.front(), ports.back()));
}

std::unique_ptr<Bootstrap> met(std::unique_ptr<ProcessBootstrap> ranks) {
  ranks->find_nodes();
  return ranks;
}

}  // namespace

std::unique_ptr<Bootstrap> meet_at_port(const Surroundings& surroundings, double timeout_s) {
  if (!surroundings.token && !surroundings.one_node()) {
    throw Error(
        ErrorKind::environment,
        fmt::format("{} gave this run no name of its own (ranks on several machines prove by it that they belong "
                    "together) set DISTATTN_TOKEN to the same secret for all ranks",
                    surroundings.launcher));
  }
  TokenFile file(surroundings);
  if (surroundings.place.rank == 0) {
    const Socket listener =
        listen_on_first_free(surroundings.ports, surroundings.one_node() ? Reach::this_machine : Reach::any);
    const RunKey run(surroundings.token ? *surroundings.token : file.write(), command_identity());
    return met(std::make_unique<ProcessBootstrap>(surroundings.launcher, surroundings.place, listener, run, timeout_s));
  }
  const auto look = [&] {
    Whereabouts where;
    where.run = RunKey(surroundings.token ? *surroundings.token : file.read(), command_identity());
    if (where.run.token.empty()) {
      where.unknown = file.path() + " has no token of it";
      return where;
    }
    const std::string host = surroundings.one_node() ? "127.0.0.1" : surroundings.host;
    for (const int port : surroundings.ports) where.endpoints.push_back({host, port});
    return where;
  };
  return met(std::make_unique<ProcessBootstrap>(surroundings.launcher, surroundings.place, look, timeout_s));
}

}  // namespace distattn::backends::launch

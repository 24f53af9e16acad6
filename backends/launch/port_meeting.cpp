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
#include "distattn/files.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::launch {
namespace {

/// A token that only this user's processes on this machine can read. The first rank 0 that meets at the port writes it;
/// others that come while it meets share it, for what tells runs apart is their command. Each holds the file, and the
/// last removes it.
class TokenFile {
 public:
  explicit TokenFile(const LauncherEnvironment& run) : path_(path_for(run.ports.front(), run.start)) {}
  ~TokenFile() {
    name_.reset();
    remove();
  }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }

  std::string hold(Clock::time_point deadline) {
    std::string token;
    for (Backoff backoff(longest_pause); (token = try_to_hold()).empty(); backoff.pause()) {
      if (Clock::now() >= deadline) fail("it stays locked");
    }
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
    token.resize(index(std::max<ssize_t>(got, 0)));
    return token;
  }

 private:
  static constexpr std::chrono::milliseconds longest_pause{20};

  /// Empty where another run is writing or removing it just now. A file that nobody holds is a dead run's.
  std::string try_to_hold() {
    held_ = Socket(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!held_) fail(std::strerror(errno));
    struct stat info {};
    if (::fstat(held_.fd(), &info) != 0 || info.st_uid != ::geteuid()) {
      held_ = Socket();
      fail("it belongs to somebody else");
    }
    if (lock(LOCK_EX) && same_file(held_.fd(), path_)) {
      const std::string token = draw_token();
      const bool whole = ::fchmod(held_.fd(), 0600) == 0 && ::ftruncate(held_.fd(), 0) == 0 &&
                         ::pwrite(held_.fd(), token.data(), token.size(), 0) == static_cast<ssize_t>(token.size());
      if (!whole) fail(std::strerror(errno));
    }
    // Between the two locks another run may have written its own.
    return lock(LOCK_SH) && same_file(held_.fd(), path_) ? read() : "";
  }
  bool lock(int kind) {
    if (::flock(held_.fd(), kind | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) fail(std::strerror(errno));
    return false;
  }
  /// Only the last that holds it can lock it for itself.
  void remove() const {
    if (held_ && ::flock(held_.fd(), LOCK_EX | LOCK_NB) == 0 && same_file(held_.fd(), path_)) ::unlink(path_.c_str());
  }
  [[noreturn]] void fail(const char* why) {
    throw Error(
        ErrorKind::environment,
        fmt::format("{} cannot be written ({}): set DISTATTN_TOKEN to the same text for all ranks", path_, why));
  }

  static std::string path_for(int port, const std::string& start) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    const std::string own = start.empty() ? "" : fmt::format("-{:x}", std::hash<std::string>()(start));
    return (error ? std::filesystem::path("/tmp") : folder) /
           fmt::format("distattn-{}-{}{}.token", ::geteuid(), port, own);
  }

  const std::string path_;
  Socket held_;                        // the open file, with the lock
  std::optional<TemporaryFile> name_;  // to be taken away if this process is interrupted
};

Socket listen_on_first_free(const std::vector<int>& ports, Reach reach) {
  std::string reasons;  // each once
  for (const int port : ports) {
    std::string why;
    if (auto socket = listen_on(port, reach, &why)) return std::move(*socket);
    if (reasons.find(why) == std::string::npos) reasons += (reasons.empty() ? "" : ", ") + why;
  }
  throw Error(ErrorKind::environment,
              fmt::format("rank 0 cannot listen on ports {} to {} ({}): set DISTATTN_PORT to a free one", ports.front(),
                          ports.back(), reasons));
}

/// Rank 0 when it hears nothing of the others, which it could not where they are on other machines.
Error with_reach(const Error& error, const LauncherEnvironment& environment) {
  if (error.kind() != ErrorKind::timeout || environment.place.local_size != 0 || !environment.loopback) return error;
  return {error.kind(),
          fmt::format("{}; it listens to this machine alone, as MASTER_ADDR names it: if others are on other machines, "
                      "set DISTATTN_TOKEN to the same secret for all ranks",
                      error.what())};
}

std::unique_ptr<Bootstrap> met(std::unique_ptr<ProcessBootstrap> ranks) {
  ranks->find_nodes();
  return ranks;
}

}  // namespace

std::unique_ptr<Bootstrap> meet_at_port(const LauncherEnvironment& environment, double timeout_s) {
  if (!environment.token && !environment.one_node()) {
    throw Error(
        ErrorKind::environment,
        fmt::format("{} gave this run no name of its own (ranks on several machines prove by it that they belong "
                    "together): set DISTATTN_TOKEN to the same secret for all ranks",
                    environment.launcher));
  }
  TokenFile file(environment);
  if (environment.place.rank == 0) {
    const Socket listener =
        listen_on_first_free(environment.ports, environment.one_node() ? Reach::this_machine : Reach::any);
    const RunKey run(environment.token ? *environment.token : file.hold(after_seconds(timeout_s)), command_identity());
    try {
      return met(std::make_unique<ProcessBootstrap>(environment.launcher, environment.place, listener, run, timeout_s));
    } catch (const Error& error) {
      throw with_reach(error, environment);
    }
  }
  const auto look = [&] {
    MeetingPoint where;
    where.run = RunKey(environment.token ? *environment.token : file.read(), command_identity());
    if (where.run.token.empty()) {
      where.unknown = file.path() + " has no token of it";
      return where;
    }
    const std::string host = environment.one_node() ? "127.0.0.1" : environment.host;
    for (const int port : environment.ports) where.endpoints.push_back({host, port});
    return where;
  };
  return met(std::make_unique<ProcessBootstrap>(environment.launcher, environment.place, look, timeout_s));
}

}  // namespace distattn::backends::launch

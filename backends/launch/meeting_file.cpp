#include "backends/launch/meeting_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <sstream>
#include <utility>

#include <fmt/core.h>

#include "backends/launch/handshake.hpp"
#include "backends/launch/launcher.hpp"
#include "backends/launch/processes.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::launch {
namespace {

constexpr auto longest_pause = std::chrono::milliseconds(50);
constexpr const char* timed_out = "timeout";

/// When a process of this namespace began; nothing if it has ended.
std::optional<std::string> birth_of(int pid) {
  const auto process = process_of(pid);
  return process ? std::optional(process->born) : std::nullopt;
}

/// A process that cannot be seen from here is not known to be gone: containers that share a network have pids of their
/// own.
bool gone(const MeetingFile::Claim& claim) {
  if (claim.node != node_identity() || claim.pids != pid_namespace()) return false;
  const auto born = birth_of(claim.pid);
  return !born || (*born != claim.born && *born != unknown_of_process && claim.born != unknown_of_process);
}

[[noreturn]] void fail_on(const std::string& path, const char* what) {
  throw Error(ErrorKind::environment,
              fmt::format("{} cannot be {} ({}): name another file", path, what, std::strerror(errno)));
}

bool is_link(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

/// Holds the file for one process at a time, each for moments: one that is stopped just then must not stop the others.
/// Past the deadline it is waited for a little longer, because all ranks may come to that at once.
class Lock {
 public:
  Lock(int fd, const std::string& path, Clock::time_point deadline) : fd_(fd) {
    for (Backoff backoff(longest_pause); ::flock(fd_, LOCK_EX | LOCK_NB) != 0; backoff.pause()) {
      if (errno != EWOULDBLOCK && errno != EINTR) fail_on(path, "locked");
      if (Clock::now() < deadline + grace) continue;
      throw Error(ErrorKind::timeout,
                  fmt::format("{} stays locked (a rank that came to it has stopped): continue or end "
                              "its process, or name another file",
                              path));
    }
  }
  ~Lock() { ::flock(fd_, LOCK_UN); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  static constexpr std::chrono::milliseconds grace{500};

  int fd_;
};

}  // namespace

bool same_file(int fd, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

// From a constructor that has ended, so that the destructor closes the file if this one throws.
MeetingFile::MeetingFile(std::string path, int size, std::optional<Rank> wish, Clock::time_point deadline)
    : MeetingFile(std::move(path), size) {
  if (wish && *wish >= size)
    refuse(fmt::format("DISTATTN_RANK={} is no rank of {} (ranks count from 0): correct it", *wish, size));
  while (true) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600);
    if (fd_ < 0 && errno == ELOOP && is_link(path_)) {  // whose own name would be taken away, and what it names stay
      refuse(fmt::format("{} is no meeting point of ranks (it is a symbolic link): name the file itself", path_));
    }
    if (fd_ < 0) fail_on(path_, "opened");
    struct stat info {};
    if (::fstat(fd_, &info) == 0 && !S_ISREG(info.st_mode)) {
      refuse(fmt::format("{} is no meeting point of ranks (it is not a regular file): name another file", path_));
    }
    if (claim(size, wish, deadline)) return;
    ::close(std::exchange(fd_, -1));
  }
}

MeetingFile::MeetingFile(std::string path, int size) : path_(std::move(path)), size_(size) {}

MeetingFile::~MeetingFile() {
  name_.reset();
  if (fd_ >= 0) ::close(fd_);
}

bool MeetingFile::claim(int size, std::optional<Rank> wish, Clock::time_point deadline) {
  const Lock lock(fd_, path_, deadline);
  if (!same_file(fd_, path_)) return false;
  read();
  if (failure_) {  // and whoever is to take the name away has not come to that
    remove();
    if (same_file(fd_, path_)) throw Error(*failure_);
    return false;
  }
  if (token_.empty() || all_gone()) begin(size);  // nobody else has come
  if (size_ != size) {
    refuse(fmt::format("{} is of a run of {} ranks (this one was started for {}): start all ranks alike", path_, size_,
                       size));
  }
  if (claims_.size() == index(size)) {
    refuse(
        fmt::format("{} ranks have already come to {} (this one is too many): start each once, or remove the file "
                    "if it is of an earlier run",
                    size, path_));
  }
  const auto wished = [&](const Claim& claim) { return claim.wish == wish; };
  if (wish && std::any_of(claims_.begin(), claims_.end(), wished)) {
    refuse(
        fmt::format("rank {} has already come (two processes have DISTATTN_RANK={}): start each once", *wish, *wish));
  }
  own_ = claims_.size();
  append(fmt::format("claim {} {} {} {} {}\n", wish ? std::to_string(*wish) : "-", node_identity(), pid_namespace(),
                     ::getpid(), birth_of(::getpid()).value_or(unknown_of_process)));
  name_.emplace([this] { remove(); });
  return true;
}

/// A file that cannot be written does not stay.
void MeetingFile::begin(int size) try {
  const TemporaryFile name([this] { remove(); });
  if (::ftruncate(fd_, 0) != 0) fail_on(path_, "emptied");
  claims_.clear();
  endpoints_.clear();
  failure_.reset();
  size_ = size;
  token_ = draw_token();
  append(fmt::format("ranks {} {}\n", size, token_));
} catch (...) {
  remove();
  throw;
}

bool MeetingFile::all_gone() const { return std::all_of(claims_.begin(), claims_.end(), gone); }

void MeetingFile::append(const std::string& line) {
  if (::lseek(fd_, 0, SEEK_END) < 0 || ::write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    fail_on(path_, "written");
  }
}

void MeetingFile::read() {
  std::string text;
  struct stat info {};
  if (::fstat(fd_, &info) != 0) fail_on(path_, "read");
  text.resize(index(info.st_size));
  const ssize_t got = ::pread(fd_, text.data(), text.size(), 0);
  text.resize(index(std::max<ssize_t>(got, 0)));

  claims_.clear();
  endpoints_.clear();
  failure_.reset();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "ranks") {
      words >> size_ >> token_;
    } else if (kind == "claim") {
      Claim claim;
      std::string wish;
      words >> wish >> claim.node >> claim.pids >> claim.pid >> claim.born;
      if (wish != "-") claim.wish = std::atoi(wish.c_str());
      claims_.push_back(claim);
    } else if (kind == "listen") {
      Endpoint endpoint;
      while (words >> endpoint.host >> endpoint.port) endpoints_.push_back(endpoint);
    } else if (kind == "failed") {
      std::string how, why;
      std::getline(words >> how >> std::ws, why);
      failure_.emplace(how == timed_out ? ErrorKind::timeout : ErrorKind::peer, why);
    } else {
      refuse(fmt::format("{} is no meeting point of ranks (\"{}\" stands in it): name another file", path_,
                         line.substr(0, 40)));
    }
  }
}

/// With the file locked: ends the meeting for all, and takes the name away before another run can come to it.
void MeetingFile::fail(const Error& failure) {
  append(fmt::format("failed {} {}\n", failure.kind() == ErrorKind::timeout ? timed_out : "peer", failure.what()));
  remove();
  throw Error(failure);
}

void MeetingFile::fail_for_want_of(const Claim& lost) {
  const auto rank = lost.wish ? fmt::format("rank {}", *lost.wish) : "a rank";
  fail({ErrorKind::peer,
        fmt::format("{} is gone (process {} ended before the run began): look at its own output", rank, lost.pid)});
}

Place MeetingFile::wait_for_all(Clock::time_point deadline) {
  for (Backoff backoff(longest_pause);; backoff.pause()) {
    const Lock lock(fd_, path_, deadline);
    read();
    if (failure_) throw Error(*failure_);
    if (claims_.size() == index(size_)) break;
    const auto lost = std::find_if(claims_.begin(), claims_.end(), gone);
    if (lost != claims_.end()) fail_for_want_of(*lost);
    if (Clock::now() >= deadline) {
      fail({ErrorKind::timeout,
            fmt::format("{} did not come to {} (waited for the timeout): start all {} ranks, or give "
                        "a longer timeout",
                        missing(), path_, size_)});
    }
  }

  const std::vector<std::size_t> ranks = order();
  Place place{0, size_, 0, 0};
  place.rank = static_cast<Rank>(std::find(ranks.begin(), ranks.end(), own_) - ranks.begin());
  for (Rank rank = 0; rank < size_; ++rank) {
    if (claims_[ranks[index(rank)]].node != claims_[own_].node) continue;
    ++place.local_size;
    if (rank < place.rank) ++place.local_rank;
  }
  return place;
}

/// Claims by rank.
std::vector<std::size_t> MeetingFile::order() const {
  std::vector<std::size_t> claims(claims_.size());
  std::iota(claims.begin(), claims.end(), std::size_t{0});
  const auto first_of_node = [&](std::size_t claim) {
    const auto same = [&](const Claim& other) { return other.node == claims_[claim].node; };
    return std::find_if(claims_.begin(), claims_.end(), same) - claims_.begin();
  };
  const auto wishes = std::count_if(claims_.begin(), claims_.end(), [](const Claim& c) { return c.wish.has_value(); });
  if (wishes == 0) {
    std::stable_sort(claims.begin(), claims.end(),
                     [&](std::size_t a, std::size_t b) { return first_of_node(a) < first_of_node(b); });
  } else if (wishes == size_) {
    std::sort(claims.begin(), claims.end(),
              [&](std::size_t a, std::size_t b) { return *claims_[a].wish < *claims_[b].wish; });
  } else {
    refuse(fmt::format("{} of {} ranks have DISTATTN_RANK (all or none must): set it for all", wishes, size_));
  }
  return claims;
}

std::string MeetingFile::missing() const {
  std::string names;
  for (Rank rank = 0; rank < size_; ++rank) {
    const auto wished = [&](const Claim& claim) { return claim.wish == rank; };
    if (std::any_of(claims_.begin(), claims_.end(), wished)) continue;
    names += fmt::format("{}rank {}", names.empty() ? "" : ", ", rank);
  }
  const bool named = std::all_of(claims_.begin(), claims_.end(), [](const Claim& c) { return c.wish.has_value(); });
  return named ? names : fmt::format("{} of {} ranks", size_ - static_cast<int>(claims_.size()), size_);
}

bool MeetingFile::one_node() const {
  return std::all_of(claims_.begin(), claims_.end(), [&](const Claim& c) { return c.node == claims_[own_].node; });
}

void MeetingFile::announce(const std::vector<Endpoint>& endpoints, Clock::time_point deadline) {
  std::string line = "listen";
  for (const Endpoint& endpoint : endpoints) line += fmt::format(" {} {}", endpoint.host, endpoint.port);
  const Lock lock(fd_, path_, deadline);
  append(line + "\n");
}

std::vector<Endpoint> MeetingFile::announced(Clock::time_point deadline) {
  const Lock lock(fd_, path_, deadline);
  read();
  if (failure_) throw Error(*failure_);
  if (const Claim& first = claims_[order().front()]; endpoints_.empty() && gone(first)) fail_for_want_of(first);
  return endpoints_;
}

void MeetingFile::give_up(const Error& error, Clock::time_point deadline) {
  const Lock lock(fd_, path_, deadline);
  append(fmt::format("failed peer {}\n", error.what()));
}

void MeetingFile::remove() const {
  if (same_file(fd_, path_)) ::unlink(path_.c_str());
}

}  // namespace distattn::backends::launch

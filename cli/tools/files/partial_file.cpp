#include "cli/tools/files/partial_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <random>
#include <system_error>
#include <thread>

namespace distattn {
namespace {

namespace fs = std::filesystem;

constexpr int tries = 100;

/// The same for all containers of a machine and another after each start of it: the locks of those who have it are kept
/// by one kernel, so that a lock that can be had means that its holders are dead.
std::string machine_tag() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.size() < 8 ? "unknown0" : boot.substr(0, 8);
}

std::string beginning(const fs::path& path) {
  constexpr std::size_t longest_name = 255, of_tag = sizeof ".partial-01234567-0123456789abcdef";
  return path.filename().string().substr(0, longest_name - of_tag) + ".partial-";
}

/// Whether it could be had; where locks are not supported nobody is ever found dead.
bool lock(int fd, int kind) { return ::flock(fd, kind | LOCK_NB) == 0; }

bool has_name(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && status.st_nlink > 0;
}

void remove_if_dead(const fs::path& partial) {
  const int fd = ::open(partial.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && lock(fd, LOCK_EX)) ::unlink(partial.c_str());
  ::close(fd);
}

}  // namespace

std::string new_tag() {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}", machine_tag(), random(), random());
}

fs::path partial_path(const fs::path& path, const std::string& tag) {
  return path.parent_path() / (beginning(path) + tag);
}

int make_partial(const fs::path& partial) {
  for (int i = 0; i < tries; ++i) {
    const int fd = ::open(partial.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return fd;
    lock(fd, LOCK_SH);
    if (has_name(fd)) return fd;
    ::close(fd);  // before it was held, another run took it for a dead one's
  }
  errno = EAGAIN;
  return -1;
}

int join_partial(const fs::path& partial) {
  const int fd = ::open(partial.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd >= 0) lock(fd, LOCK_SH);
  return fd;
}

HeldFolder::HeldFolder(const fs::path& file) noexcept
    : fd_(::open(file.has_parent_path() ? file.parent_path().c_str() : ".", O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

HeldFolder::~HeldFolder() {
  if (fd_ >= 0) ::close(fd_);
}

void HeldFolder::remove(const fs::path& file) const noexcept { ::unlinkat(fd_, file.filename().c_str(), 0); }

FolderLock::FolderLock(const fs::path& folder) noexcept
    : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  constexpr auto pause = std::chrono::milliseconds(5);
  constexpr int pauses = 600;  // whoever holds it longer has stopped
  for (int i = 0; i < pauses && fd_ >= 0 && !lock(fd_, LOCK_EX) && errno == EWOULDBLOCK; ++i) {
    std::this_thread::sleep_for(pause);
  }
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

void remove_dead_partials(const fs::path& path) noexcept {
  try {
    const std::string prefix = beginning(path) + machine_tag() + "-";
    const fs::path folder = path.parent_path();
    for (const auto& entry : fs::directory_iterator(folder.empty() ? fs::path(".") : folder)) {
      if (entry.path().filename().string().starts_with(prefix)) remove_if_dead(entry.path());
    }
  } catch (const std::exception&) {
    // A folder that cannot be listed keeps what is in it.
  }
}

}  // namespace distattn

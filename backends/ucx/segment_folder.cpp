#include "backends/ucx/segment_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <random>
#include <span>
#include <thread>

#include <fmt/core.h>

namespace distattn::backends::ucx {
namespace {

namespace fs = std::filesystem;

constexpr const char* segments = "/dev/shm";
constexpr std::string_view prefix = "distattn-run-";  // before 0.2 they had no word, and nobody held them
constexpr auto pause = std::chrono::milliseconds(1);
constexpr int tries = 500;

std::string agreed_name(Bootstrap& bootstrap) {
  std::random_device random;
  const std::string mine = fmt::format("{}/{}{:08x}{:08x}", segments, prefix, random(), random());
  const auto all = bootstrap.all_gather(std::as_bytes(std::span(mine)));
  return {reinterpret_cast<const char*>(all[0].data()), all[0].size()};
}

int open_folder(const std::string& name) {
  return ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/// Until nothing has the name: a rank may be making a segment just now.
void remove_folder(const std::string& name) {
  std::error_code not_yet;
  for (int i = 0; i < tries; ++i) {
    fs::remove_all(name, not_yet);
    if (!fs::exists(fs::symlink_status(name, not_yet))) return;
    std::this_thread::sleep_for(pause);
  }
}

/// Those of this user that no living process holds.
void remove_dead_folders() {
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(segments, unreadable)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    const int folder = open_folder(entry.path().string());
    if (folder < 0) continue;
    struct stat status {};
    const bool own = ::fstat(folder, &status) == 0 && status.st_uid == ::geteuid();
    if (own && ::flock(folder, LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry.path(), unreadable);
    ::close(folder);
  }
}

}  // namespace

SegmentFolder::SegmentFolder(Bootstrap& bootstrap) : name_(agreed_name(bootstrap)) {
  remove_dead_folders();
  removal_.emplace([this] { make(); }, [this] { remove(); });
}

SegmentFolder::~SegmentFolder() {
  remove();
  removal_.reset();
  if (folder_ >= 0) ::close(folder_);
}

/// By its descriptor, so that the path can stay the same when the folder goes.
std::string SegmentFolder::path() const {
  const std::string path = fmt::format("/proc/self/fd/{}", folder_);
  return folder_ >= 0 && ::access(path.c_str(), F_OK) == 0 ? path : "";
}

/// Another run that looks for dead ones may take the folder away before a rank holds it.
void SegmentFolder::make() {
  for (int i = 0; i < tries; ++i) {
    ::mkdir(name_.c_str(), 0700);
    folder_ = open_folder(name_);
    if (folder_ < 0) return;
    struct stat status {};
    const bool held = ::flock(folder_, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (held && ::fstat(folder_, &status) == 0 && status.st_nlink > 0) return;
    ::close(folder_);
    folder_ = -1;
    std::this_thread::sleep_for(pause);
  }
}

void SegmentFolder::settle() {
  const int usual = folder_ < 0 ? -1 : ::open(segments, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (usual >= 0) {
    ::dup3(usual, folder_, O_CLOEXEC);
    ::close(usual);
  }
  remove();
}

void SegmentFolder::remove() const { remove_folder(name_); }

}  // namespace distattn::backends::ucx

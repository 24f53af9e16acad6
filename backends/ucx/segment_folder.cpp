#include "backends/ucx/segment_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <span>

#include <fmt/core.h>

namespace distattn::backends::ucx {
namespace {

constexpr const char* segments = "/dev/shm";

std::string agreed_name(Bootstrap& bootstrap) {
  std::random_device random;
  const std::string mine = fmt::format("{}/distattn-{:08x}{:08x}", segments, random(), random());
  const auto all = bootstrap.allgather(std::as_bytes(std::span(mine)));
  return {reinterpret_cast<const char*>(all[0].data()), all[0].size()};
}

}  // namespace

SegmentFolder::SegmentFolder(Bootstrap& bootstrap) : name_(agreed_name(bootstrap)) {
  ::mkdir(name_.c_str(), 0700);
  folder_ = ::open(name_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

SegmentFolder::~SegmentFolder() {
  remove();
  if (folder_ >= 0) ::close(folder_);
}

/// By its descriptor, so that the path can stay the same when the folder goes.
std::string SegmentFolder::path() const { return folder_ < 0 ? "" : fmt::format("/proc/self/fd/{}", folder_); }

void SegmentFolder::settle() {
  const int usual = folder_ < 0 ? -1 : ::open(segments, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (usual >= 0) {
    ::dup3(usual, folder_, O_CLOEXEC);
    ::close(usual);
  }
  remove();
}

void SegmentFolder::remove() const {
  std::error_code somebody_else_did;
  std::filesystem::remove_all(name_, somebody_else_did);
}

}  // namespace distattn::backends::ucx

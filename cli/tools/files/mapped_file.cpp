#include "cli/tools/files/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

#include "cli/tools/arrays.hpp"
#include "core/src/io/open_file.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// Where files are mapped, and what they were then. Those who may not wait for a lock read begin, bytes and name, which
/// is set as long as the entry is taken.
struct Mapping {
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<std::size_t> bytes{0};
  std::atomic<const char*> name{nullptr};
  std::string path;
  int fd = -1;
  struct stat status {};
};
std::array<Mapping, 64> mappings;  // more are not watched
std::mutex mappings_mutex;

/// Keeps a descriptor of its own.
void remember(const std::byte* begin, std::size_t bytes, const std::filesystem::path& path, int fd,
              const struct stat& status) {
  const std::lock_guard lock(mappings_mutex);
  for (Mapping& entry : mappings) {
    if (entry.name != nullptr) continue;
    entry.path = path.string();
    entry.begin = begin;
    entry.bytes = bytes;
    entry.fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    entry.status = status;
    entry.name = entry.path.c_str();
    return;
  }
}

void forget(const std::byte* begin) {
  const std::lock_guard lock(mappings_mutex);
  for (Mapping& entry : mappings) {
    if (entry.begin != begin || entry.name == nullptr) continue;
    entry.name = nullptr;
    ::close(entry.fd);
  }
}

}  // namespace

MappedFile map_file(const std::filesystem::path& path) {
  const Descriptor descriptor{open_regular(path)};
  struct stat status {};
  if (::fstat(descriptor.fd, &status) != 0) refuse_file(path, std::strerror(errno));
  const auto size = index(status.st_size);
  if (size == 0) return {};
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.fd, 0);
  if (address == MAP_FAILED) refuse_file(path, std::strerror(errno));
  const auto* const begin = static_cast<const std::byte*>(address);
  const auto unmap = [size](const void* p) {
    forget(static_cast<const std::byte*>(p));
    ::munmap(const_cast<void*>(p), size);
  };
  std::shared_ptr<const void> owner(address, unmap);
  remember(begin, size, path, descriptor.fd, status);
  return {{begin, size}, std::move(owner)};
}

const char* mapped_file_at(const void* address) noexcept {
  const auto* const byte = static_cast<const std::byte*>(address);
  for (const Mapping& entry : mappings) {
    const char* const name = entry.name;
    if (name != nullptr && std::greater_equal<>()(byte, entry.begin.load()) &&
        std::less<>()(byte, entry.begin.load() + entry.bytes.load())) {
      return name;
    }
  }
  return nullptr;
}

void require_unchanged_files() {
  const std::lock_guard lock(mappings_mutex);
  for (const Mapping& entry : mappings) {
    struct stat now {};
    if (entry.name == nullptr || ::fstat(entry.fd, &now) != 0) continue;
    const auto &then = entry.status.st_mtim, &since = now.st_mtim;
    if (now.st_size == entry.status.st_size && since.tv_sec == then.tv_sec && since.tv_nsec == then.tv_nsec) continue;
    throw Error(
        ErrorKind::environment,
        fmt::format("{} was changed while it was read (nobody knows which values were): run again", entry.path));
  }
}

}  // namespace distattn

#include "cli/tools/arrays.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <numeric>

#include "cli/tools/files/stored.hpp"
#include "fuzz/targets.hpp"

namespace distattn::fuzz {
namespace {

/// A file of these bytes that has no name in any folder.
class File {
 public:
  explicit File(Bytes bytes) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
    require(fd_ >= 0 && ::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
            "the system keeps a file in memory");
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

/// Touches every byte that the array is said to have.
void use(const StoredArray& array) {
  const auto bytes = checked_bytes(array.shape(), size_of(array.type()));
  require(bytes.has_value(), "the size of an array is known");
  const Bytes values(array.data(), static_cast<std::size_t>(*bytes));
  volatile auto sum =
      std::accumulate(values.begin(), values.end(), std::size_t{0},
                      [](std::size_t all, std::byte each) { return all + static_cast<std::size_t>(each); });
  static_cast<void>(sum);
  accepted([&] { return array.integers(); });
  const auto tensor = accepted([&] { return array.tensor(); });
  if (!tensor) return;
  const Extent extent = extent_of(*tensor);
  require(extent.begin == array.data() && extent.bytes() <= values.size(), "a tensor stays inside its array");
}

}  // namespace

void read_npy_file(Bytes bytes) {
  const File file(bytes);
  const auto array = accepted([&] { return read_npy(file.path()); });
  if (array) use(*array);
}

void read_safetensors_file(Bytes bytes) {
  const File file(bytes);
  const auto arrays = accepted([&] { return read_safetensors(file.path()); });
  if (!arrays) return;
  for (const auto& [name, array] : *arrays) use(array);
}

}  // namespace distattn::fuzz

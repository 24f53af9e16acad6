#pragma once
/// Text files that the library reads, and what a process removes if it ends early.

#include <cstddef>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#pragma GCC visibility push(default)
namespace distattn {

/// A whole file. Throws Error(usage) when it cannot be read.
std::string read_file(const std::filesystem::path& path);
/// The same, or everything that comes through a pipe. Also throws Error(usage) for more than `most_bytes` and for
/// devices, which may be endless, and Error(timeout) as set by wait_for_pipes().
std::string read_file_or_pipe(const std::filesystem::path& path, std::size_t most_bytes);

/// Sets how long this process waits for a pipe whose other end is absent or idle. Initially 60 s.
void wait_for_pipes(double seconds);
/// What was set, in seconds.
double pipe_wait_s();

/// Removes every temporary file of this process, the newest first: for processes that end without unwinding, e.g. by a
/// signal. While the returned lock is held, threads that create, complete or remove such files wait.
[[nodiscard]] std::unique_lock<std::mutex> remove_temporary_files();
/// Makes remove_temporary_files() wait while the lock is held.
[[nodiscard]] std::unique_lock<std::mutex> hold_temporary_files();

/// A temporary file, or anything else that must not outlive this process: while this object lives,
/// remove_temporary_files() calls `remove`, on any thread; it must not throw. The destructor does not call it.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::function<void()> remove) : TemporaryFile([] {}, std::move(remove)) {}
  /// Calls `make`, which may throw, and registers `remove`, with no remove_temporary_files() between the two.
  TemporaryFile(const std::function<void()>& make, std::function<void()> remove);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

 private:
  std::list<std::function<void()>>::iterator place_;
};

}  // namespace distattn
#pragma GCC visibility pop

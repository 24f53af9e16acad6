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

/// Removes every temporary file of this process, the newest first: for processes that end without unwinding, as by a
/// signal. While the returned lock is held, threads that create, complete or remove such files wait.
[[nodiscard]] std::unique_lock<std::mutex> discard_partial_files();
/// Makes discard_partial_files() wait while the lock is held.
[[nodiscard]] std::unique_lock<std::mutex> hold_partial_files();

/// A function that discard_partial_files() also calls, as long as this object lives. It may be called on any thread and
/// must not throw.
class Discardable {
 public:
  explicit Discardable(std::function<void()> remove) : Discardable([] {}, std::move(remove)) {}
  /// Calls `make`, which may throw, and registers `remove`, with no discard_partial_files() between the two.
  Discardable(const std::function<void()>& make, std::function<void()> remove);
  ~Discardable();
  Discardable(const Discardable&) = delete;
  Discardable& operator=(const Discardable&) = delete;

 private:
  std::list<std::function<void()>>::iterator place_;
};

}  // namespace distattn
#pragma GCC visibility pop

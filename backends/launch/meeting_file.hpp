#pragma once
/// A file in which processes say that they are there, and from which each learns its rank.

#include <optional>
#include <string>
#include <vector>

#include "backends/launch/rendezvous.hpp"
#include "distattn/files.hpp"

namespace distattn::backends::launch {

/// Whether the open file is still the one that the path names.
bool same_file(int fd, const std::string& path);

/// One line a process, in the order in which they came; then a line from rank 0. Lines are only added.
class MeetingFile {
 public:
  struct Claim {
    std::optional<Rank> wish;
    std::string node;
    std::string pids;  ///< namespace that `pid` counts in
    int pid = 0;
    std::string born;  ///< when that process began: numbers are given again
  };

  /// Adds this process. Throws Error(usage) when all places are taken or the file is of another number of ranks, and
  /// Error(environment) when it cannot be written. A file whose processes are all gone is begun anew. Here as below,
  /// Error(timeout) when another process holds the file beyond the deadline.
  MeetingFile(std::string path, int size, std::optional<Rank> wish, Clock::time_point deadline);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

  /// Waits until all have come. Ranks of a node are consecutive, rank 0 came first, unless they have wishes. Throws
  /// Error(timeout) naming who is missing, and Error(peer) when one that came is gone; the others then do likewise.
  Place wait_for_all(Clock::time_point deadline);
  bool one_node() const;
  const std::string& token() const { return token_; }

  /// Rank 0: where it listens.
  void announce(const std::vector<Endpoint>& endpoints, Clock::time_point deadline);
  /// Rank 0: why it will not; the others throw Error(peer).
  void give_up(const Error& error, Clock::time_point deadline);
  /// The others: empty until rank 0 has said so. Throws Error(peer) when it is gone.
  std::vector<Endpoint> announced(Clock::time_point deadline);
  /// Takes the name away: the next run begins a new file.
  void remove() const;

 private:
  MeetingFile(std::string path, int size);
  /// False where another run has removed the file since it was opened.
  bool claim(int size, std::optional<Rank> wish, Clock::time_point deadline);
  void begin(int size);
  bool all_gone() const;
  [[noreturn]] void fail(const Error& failure);
  [[noreturn]] void fail_for_want_of(const Claim& lost);
  void read();
  void append(const std::string& line);
  std::vector<std::size_t> order() const;
  std::string missing() const;

  std::string path_;
  int fd_ = -1;
  int size_ = 0;
  std::size_t own_ = 0;  // index of the own claim
  std::string token_;
  std::vector<Claim> claims_;
  std::vector<Endpoint> endpoints_;
  std::optional<Error> failure_;       ///< as the others throw it
  std::optional<TemporaryFile> name_;  ///< to be taken away if this process is interrupted
};

}  // namespace distattn::backends::launch

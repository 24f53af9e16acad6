#pragma once
/// What tells ranks over NCCL, whose messages carry nothing but data, that they make different calls.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "distattn/engine.hpp"

namespace distattn::backends::nccl {

/// With a rank's first message of a pass to another on a lane travels the number of its call (BufferTable::call()),
/// which the other compares with its own when the message has come. Used by one thread at a time, except Arrived.
class CallMarks {
 public:
  /// A number in the GPU's memory that goes to a rank, or comes from it.
  struct Mark {
    bool outgoing = false;
    Rank peer = 0;
    std::byte* data = nullptr;
  };
  static constexpr std::size_t bytes = sizeof(std::uint64_t);
  class Arrived;

  /// Allocates all that it needs. `driver` must outlive it.
  CallMarks(cuda::Driver& driver, int size);

  /// A pass begins, in which nobody has been told of it. Its number goes to the GPU on `stream`.
  void begin(const BufferTable& buffers, cuda::Stream& stream);
  /// Those that travel with the messages of `step`. Valid until the next call.
  std::span<const Mark> of(const Step& step);
  /// Copies what came with the last step's messages, which are on `stream`, to the host, where it may be compared when
  /// that has ended; null: nothing came.
  std::shared_ptr<const Arrived> fetch(cuda::Stream& stream);

 private:
  void add(bool outgoing, Rank peer);

  const std::shared_ptr<std::byte> on_gpu_, on_host_;  // the own number, then those of all ranks
  std::uint64_t call_ = 0;
  std::vector<char> told_, heard_;  // by rank
  std::vector<Mark> marks_;
};

class CallMarks::Arrived {
 public:
  Arrived(std::uint64_t own, std::shared_ptr<const std::byte> numbers, std::vector<Rank> from)
      : own_(own), numbers_(std::move(numbers)), from_(std::move(from)) {}

  /// Throws Error(peer) that names a rank which makes another call than `rank`, whose they are.
  void compare(Rank rank) const;

 private:
  const std::uint64_t own_;
  const std::shared_ptr<const std::byte> numbers_;
  const std::vector<Rank> from_;
};

}  // namespace distattn::backends::nccl

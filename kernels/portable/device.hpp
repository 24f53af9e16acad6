#pragma once
/// A space of Kokkos as a device with memory of its own, without a word of Kokkos. One source serves all
/// (device_space.hpp); a build has those that its Kokkos has.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "kernels/kernels.hpp"
#include "kernels/portable/device_lists.hpp"

namespace distattn::kernels::portable {

/// gradients[head] = or += −Σ e^(logits[head] − lse − lse_low) · delta over rows of the head, a few pieces at a time.
struct SinkSums {
  static constexpr int most = 8;  ///< pieces
  DType accumulator = DType::fp32;
  int heads = 1;
  const void* logits = nullptr;
  void* gradients = nullptr;
  SinkRows pieces[most] = {};
  int count = 0;
  bool add = false;
};

/// One launch; arguments as kernels/arguments.hpp describes them, in the device's memory.
using SpaceLaunch = std::variant<RowList<AttendArgs>, RowList<AttendBackwardArgs>, ColumnList, MergeArgs,
                                 AccumulateArgs, ConvertArgs, DeltaArgs, RearrangeArgs, SinkArgs, SinkSums, FillArgs>;

/// Between which memories bytes are copied: host to device, device to host, within the device.
enum class Way : std::uint8_t { in, out, within };

/// An instance of the space: work in order. Used by one thread at a time. What Kokkos throws is thrown on as
/// Error(environment).
class SpaceQueue {
 public:
  virtual ~SpaceQueue() = default;
  virtual void start(const SpaceLaunch& launch) = 0;
  virtual void copy(void* into, const void* from, std::size_t bytes, Way way) = 0;
  virtual void clear(void* into, std::size_t bytes) = 0;
  /// Returns when all of it is done.
  virtual void fence() = 0;
};

/// Thread-safe. Its memory and queues may be let go after Kokkos has been finalized.
class SpaceDevice {
 public:
  virtual ~SpaceDevice() = default;
  virtual std::string name() const = 0;
  virtual MemorySpace space() const = 0;
  /// Why it cannot be used here; empty if it can.
  virtual std::string why_not() const = 0;
  /// Makes Kokkos ready. Ranks take devices in turn, but all of a process the first one's. `threads`: of a team, where
  /// the space is one of the host. Throws Error(environment).
  virtual void begin(int local_rank, int threads) = 0;
  /// 256-byte aligned, not cleared: in the space's memory, or in memory of the host that it reaches.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes, bool on_host) = 0;
  /// Kernels end early once *stop, which lies in memory of the host that it reaches, is not 0.
  virtual std::unique_ptr<SpaceQueue> make_queue(int threads, const int* stop) = 0;
  /// A team's scratch memory up to this size is fast.
  virtual std::size_t fast_bytes() const = 0;
};

}  // namespace distattn::kernels::portable

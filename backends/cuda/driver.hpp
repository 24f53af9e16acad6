#pragma once
/// What the device and the NCCL transport ask of the CUDA runtime, and nothing else of it. Every return code is
/// checked; failures are thrown as Error(environment). Tests put an emulation in its place.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "distattn/types.hpp"
#include "kernels/cuda/attend_kernels.hpp"

namespace distattn::backends::cuda {

/// A place in a stream. Thread-safe.
class Mark {
 public:
  virtual ~Mark() = default;
  /// Whether everything before it has ended. Throws what went wrong on the GPU.
  virtual bool passed() const = 0;
  /// Seconds on the GPU between two marks that have passed.
  virtual double seconds_since(const Mark& earlier) const = 0;
};

/// Work that was recorded, to be started as a whole.
class Graph {
 public:
  virtual ~Graph() = default;
};

/// Work in order. Used by one thread at a time; kernels start on handle(), a cudaStream_t.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void* handle() const = 0;
  /// Copies between any two memories that the GPU reaches, or from and to host memory.
  virtual void copy(void* into, const void* from, std::size_t bytes) = 0;
  virtual void clear(void* into, std::size_t bytes) = 0;
  /// What was recorded, in its order.
  virtual void start(const Graph& graph) = 0;
  virtual std::shared_ptr<const Mark> mark() = 0;
  /// What follows starts after `mark` has passed, on whatever stream it is. False, and nothing done, if whoever drives
  /// that stream is another: then the host has to wait.
  virtual bool wait_for(const Mark& mark) = 0;
  /// Returns when everything so far has ended, well or not.
  virtual void finish() noexcept = 0;
};

/// Exchanges overtake kernels where both wait for the GPU.
enum class StreamPriority : std::uint8_t { normal, high };

/// A device's memory and streams, whatever drives it. Thread-safe; outlives what it makes.
class Streams {
 public:
  virtual ~Streams() = default;
  virtual std::string_view name() const = 0;
  /// Where the device's own memory lies.
  virtual MemorySpace space() const = 0;
  /// In space(), or in host memory that the device reaches. 256-byte aligned, not cleared.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes, MemorySpace in) = 0;
  virtual std::unique_ptr<Stream> make_stream(StreamPriority priority) = 0;
};

/// One GPU of CUDA.
class Driver : public Streams {
 public:
  MemorySpace space() const final { return MemorySpace::cuda; }
  virtual std::string identity() const = 0;  ///< differs from that of every other GPU, on other machines too
  virtual kernels::cuda::Capability capability() const = 0;
  /// A stream that belongs to the caller and stays open.
  virtual std::unique_ptr<Stream> adopt_stream(void* stream) = 0;
  /// What `work` starts on the stream that it is given, which runs nothing: kernels, copies within the GPU and clears.
  /// The graph is ready there when this returns; only one start of it is under way at a time.
  virtual std::unique_ptr<Graph> record(const std::function<void(Stream&)>& work) = 0;
  /// In the calling thread, for libraries that use whichever GPU is.
  virtual void make_current() = 0;
  /// Throws what a kernel's launcher returned, if it is an error. `what` is being done.
  virtual void check(int status, const char* what) const = 0;
};

/// What the machine has: GPUs, or why none can be used.
struct Gpus {
  int count = 0;
  std::string why;  ///< none can be used, or what was found
  std::string driver_version;
};
const Gpus& find_gpus();
/// Of CUDA, that this was built with.
std::string runtime_version();

/// The driver of the GPU that a rank of this machine uses: ranks take them in turn. Made once and kept.
Driver& driver_for(int local_rank);

}  // namespace distattn::backends::cuda

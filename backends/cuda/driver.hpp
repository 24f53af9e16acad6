#pragma once
/// What the device and the NCCL transport ask of the CUDA runtime, and nothing else of it. Every return code is
/// checked; failures are thrown as Error(environment). Tests put an emulation in its place.

#include <functional>
#include <memory>
#include <string>

#include "backends/streams/stream.hpp"
#include "kernels/cuda/attend_kernels.hpp"

namespace distattn::backends::cuda {

/// Work that was recorded, to be started as a whole.
class Graph {
 public:
  virtual ~Graph() = default;
};

/// A stream of CUDA: kernels start on handle(), a cudaStream_t.
class Stream : public backends::Stream {
 public:
  virtual void* handle() const = 0;
  /// What was recorded, in its order.
  virtual void start(const Graph& graph) = 0;
};

/// One GPU of CUDA.
class Driver : public Streams {
 public:
  MemorySpace space() const final { return MemorySpace::cuda; }
  std::unique_ptr<backends::Stream> open_stream(StreamPriority priority) final { return make_stream(priority); }
  virtual std::unique_ptr<Stream> make_stream(StreamPriority priority) = 0;
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

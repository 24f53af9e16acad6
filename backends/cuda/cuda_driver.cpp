#include <cuda_runtime_api.h>

#include <exception>
#include <mutex>
#include <type_traits>
#include <vector>

#include <fmt/core.h>

#include "backends/cuda/driver.hpp"
#include "backends/patient_call.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::cuda {
namespace {

/// The runtime keeps the last error for whoever asks next: here everybody looks at the status of his own call.
void forget_last_error() { cudaGetLastError(); }

[[noreturn]] void fail(cudaError_t status, const char* what) {
  forget_last_error();
  throw Error(ErrorKind::environment,
              fmt::format("CUDA could not {} ({}: {})", what, cudaGetErrorName(status), cudaGetErrorString(status)));
}

void check_status(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(status, what);
}

/// The runtime's current GPU belongs to the calling thread; one that has none takes GPU 0, and makes a context there.
void select(int gpu) { check_status(cudaSetDevice(gpu), "select the GPU"); }

/// The same where nothing may be thrown.
void try_to_select(int gpu) noexcept {
  if (cudaSetDevice(gpu) != cudaSuccess) forget_last_error();
}

class CudaMark final : public Mark {
 public:
  /// `gpu`, whose stream it is, is selected.
  CudaMark(int gpu, cudaStream_t stream) : gpu_(gpu) {
    check_status(cudaEventCreate(&event_), "create an event");
    check_status(cudaEventRecord(event_, stream), "record an event");
  }
  ~CudaMark() override {
    try_to_select(gpu_);
    cudaEventDestroy(event_);
  }

  bool passed() const override {
    select(gpu_);
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      forget_last_error();
      return false;
    }
    check_status(status, "finish what was started");
    return true;
  }
  double seconds_since(const Mark& earlier) const override {
    select(gpu_);
    float milliseconds = 0;
    check_status(cudaEventElapsedTime(&milliseconds, dynamic_cast<const CudaMark&>(earlier).event_, event_),
                 "read an event's time");
    return static_cast<double>(milliseconds) * 1e-3;
  }
  cudaEvent_t event() const { return event_; }

 private:
  const int gpu_;
  cudaEvent_t event_ = nullptr;
};

/// As cudaStreamEndCapture() makes it.
struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using RecordedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

class CudaGraph final : public Graph {
 public:
  /// Uploads it on `stream`: else its first start would, and might wait then for all kernels that run.
  CudaGraph(int gpu, cudaGraph_t recorded, cudaStream_t stream) : gpu_(gpu) {
    check_status(cudaGraphInstantiateWithFlags(&graph_, recorded, 0), "make a graph");
    cudaError_t status = cudaGraphUpload(graph_, stream);
    if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
    if (status == cudaSuccess) return;
    cudaGraphExecDestroy(graph_);
    fail(status, "upload a graph");
  }
  ~CudaGraph() override {
    try_to_select(gpu_);
    cudaGraphExecDestroy(graph_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  cudaGraphExec_t handle() const { return graph_; }

 private:
  const int gpu_;
  cudaGraphExec_t graph_ = nullptr;
};

enum class Ownership : bool { own, borrowed };

class CudaStream final : public Stream {
 public:
  CudaStream(int gpu, cudaStream_t stream, Ownership ownership) : gpu_(gpu), stream_(stream), ownership_(ownership) {}
  ~CudaStream() override {
    if (ownership_ == Ownership::borrowed) return;
    try_to_select(gpu_);
    cudaStreamDestroy(stream_);
  }

  void* handle() const override {
    select(gpu_);
    return stream_;
  }
  void copy(void* into, const void* from, std::size_t bytes) override {
    select(gpu_);
    check_status(cudaMemcpyAsync(into, from, bytes, cudaMemcpyDefault, stream_), "copy memory");
  }
  void clear(void* into, std::size_t bytes) override {
    select(gpu_);
    check_status(cudaMemsetAsync(into, 0, bytes, stream_), "clear memory");
  }
  void start(const Graph& graph) override {
    select(gpu_);
    check_status(cudaGraphLaunch(dynamic_cast<const CudaGraph&>(graph).handle(), stream_), "start a graph");
  }
  std::shared_ptr<const Mark> mark() override {
    select(gpu_);
    return std::make_shared<CudaMark>(gpu_, stream_);
  }
  bool wait_for(const Mark& mark) override {
    const auto* const own = dynamic_cast<const CudaMark*>(&mark);
    if (own == nullptr) return false;
    select(gpu_);
    check_status(cudaStreamWaitEvent(stream_, own->event(), 0), "order two streams");
    return true;
  }
  void finish() noexcept override {
    try_to_select(gpu_);
    if (cudaStreamSynchronize(stream_) != cudaSuccess) forget_last_error();
  }

 private:
  int gpu_;
  cudaStream_t stream_;
  Ownership ownership_;
};

class CudaDriver final : public Driver {
 public:
  explicit CudaDriver(int gpu) : gpu_(gpu) {
    check_status(cudaGetDeviceProperties(&properties_, gpu), "describe the GPU");
  }

  std::string_view name() const override { return properties_.name; }
  /// As nvidia-smi writes it. Names of machines and places on their buses repeat between containers.
  std::string identity() const override {
    std::string text = "GPU-";
    for (std::size_t i = 0; i < sizeof properties_.uuid.bytes; ++i) {
      if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
      text += fmt::format("{:02x}", static_cast<unsigned char>(properties_.uuid.bytes[i]));
    }
    return text;
  }
  kernels::cuda::Capability capability() const override {
    return {properties_.major * 10 + properties_.minor, properties_.sharedMemPerBlockOptin};
  }

  std::shared_ptr<std::byte> allocate(std::size_t bytes, MemorySpace space) override {
    select(gpu_);
    void* memory = nullptr;
    if (space == MemorySpace::host) {
      check_status(cudaMallocHost(&memory, bytes), "pin host memory");
      return {static_cast<std::byte*>(memory), [gpu = gpu_](std::byte* pinned) {
                try_to_select(gpu);
                cudaFreeHost(pinned);
              }};
    }
    const cudaError_t status = cudaMalloc(&memory, bytes);
    if (status == cudaErrorMemoryAllocation) {
      std::size_t free_bytes = 0, all_bytes = 0;
      forget_last_error();
      cudaMemGetInfo(&free_bytes, &all_bytes);
      throw Error(ErrorKind::environment, fmt::format("{} has no room for {} bytes ({} of {} bytes are free)",
                                                      properties_.name, bytes, free_bytes, all_bytes));
    }
    check_status(status, "allocate memory");
    return {static_cast<std::byte*>(memory), [gpu = gpu_](std::byte* device) {
              try_to_select(gpu);
              cudaFree(device);
            }};
  }

  std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    select(gpu_);
    int least = 0, greatest = 0;
    check_status(cudaDeviceGetStreamPriorityRange(&least, &greatest), "read stream priorities");
    cudaStream_t stream = nullptr;
    check_status(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                              priority == StreamPriority::high ? greatest : least),
                 "create a stream");
    return std::make_unique<CudaStream>(gpu_, stream, Ownership::own);
  }
  std::unique_ptr<Stream> adopt_stream(void* stream) override {
    return std::make_unique<CudaStream>(gpu_, static_cast<cudaStream_t>(stream), Ownership::borrowed);
  }

  /// On a stream of its own: the legacy default stream, which a caller's may be, cannot record.
  std::unique_ptr<Graph> record(const std::function<void(Stream&)>& work) override {
    const std::unique_ptr<Stream> stream = make_stream(StreamPriority::normal);
    auto* const handle = static_cast<cudaStream_t>(stream->handle());
    check_status(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal), "begin a graph");
    std::exception_ptr failure;
    try {
      work(*stream);
    } catch (...) {
      failure = std::current_exception();
    }
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(handle, &graph);
    const RecordedGraph recorded(graph);
    if (failure != nullptr) {
      forget_last_error();
      std::rethrow_exception(failure);
    }
    check_status(status, "record a graph");
    return std::make_unique<CudaGraph>(gpu_, recorded.get(), handle);
  }

  void make_current() override { select(gpu_); }
  void check(int status, const char* what) const override { check_status(static_cast<cudaError_t>(status), what); }

 private:
  int gpu_;
  cudaDeviceProp properties_{};
};

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Gpus look_for_gpus() {
  Gpus gpus;
  int driver = 0;
  cudaDriverGetVersion(&driver);
  gpus.driver_version = driver == 0 ? "none" : version_text(driver);
  const cudaError_t status = cudaGetDeviceCount(&gpus.count);
  if (status == cudaSuccess && gpus.count > 0) {
    cudaDeviceProp first{};
    cudaGetDeviceProperties(&first, 0);
    gpus.why = fmt::format("{} x {} (sm_{}{})", gpus.count, first.name, first.major, first.minor);
    return gpus;
  }
  gpus.count = 0;
  if (driver == 0) {
    gpus.why = "no NVIDIA driver is installed";
  } else if (status == cudaErrorInsufficientDriver) {
    gpus.why = fmt::format("the NVIDIA driver is too old: it serves CUDA {}, distattn was built with {}",
                           version_text(driver), version_text(CUDART_VERSION));
  } else {
    gpus.why = fmt::format("no GPU can be used ({}: {})", cudaGetErrorName(status), cudaGetErrorString(status));
  }
  return gpus;
}

}  // namespace

/// Drivers whose GPUs or helpers are broken answer late, or never.
const Gpus& find_gpus() {
  static const Gpus gpus = [] {
    constexpr auto enough = std::chrono::seconds(60);
    const RunningClock::Keeper keeps_time;
    PatientCall<Gpus> call("look for GPUs", look_for_gpus);
    if (call.returns_before(RunningClock::now() + enough)) return call.take();
    return Gpus{0, "the NVIDIA driver has not answered within 60 s: see nvidia-smi and the system's log", "unknown"};
  }();
  return gpus;
}

std::string runtime_version() { return version_text(CUDART_VERSION); }

Driver& driver_for(int local_rank) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<CudaDriver>> drivers(index(find_gpus().count));
  const int gpu = local_rank % find_gpus().count;
  const std::scoped_lock lock(mutex);
  std::unique_ptr<CudaDriver>& driver = drivers[index(gpu)];
  if (driver == nullptr) driver = std::make_unique<CudaDriver>(gpu);
  return *driver;
}

}  // namespace distattn::backends::cuda

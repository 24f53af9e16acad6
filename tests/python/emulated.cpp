/// The shared library with an emulated GPU in place of CUDA's, and what a caller does on streams of it.

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "backends/cuda/device.hpp"
#include "backends/registration.hpp"
#include "tests/simt/emulated_driver.hpp"
#include "tests/simt/queue.hpp"

namespace {

using distattn::backends::cuda::Stream;

simt::EmulatedDriver& gpu() {
  static auto* const driver = new simt::EmulatedDriver(7);  // handles may outlive what is destroyed at an exit
  return *driver;
}

std::atomic<bool> closed{false};

Stream& stream_of(void* stream) { return *static_cast<Stream*>(stream); }

}  // namespace

namespace distattn::backends {

Registration register_cuda() {
  Registration registration{{"cuda", BackendKind::device, true, true, "an emulated GPU", "emulated"},
                            [](const DeviceOptions& options) { return cuda::make_cuda_device(gpu(), options); }};
  return registration;
}

}  // namespace distattn::backends

extern "C" {

/// Streams and memory last as long as the process.
void* emulated_stream() { return gpu().make_stream(distattn::backends::StreamPriority::normal).release(); }

/// A cudaStream_t.
void* emulated_handle(void* stream) { return stream_of(stream).handle(); }

void* emulated_memory(std::size_t bytes, int on_host) {
  static auto* const kept = new std::vector<std::shared_ptr<std::byte>>;
  const auto space = on_host != 0 ? distattn::MemorySpace::host : distattn::MemorySpace::cuda;
  return kept->emplace_back(gpu().allocate(bytes, space)).get();
}

void emulated_copy(void* stream, void* into, const void* from, std::size_t bytes) {
  stream_of(stream).copy(into, from, bytes);
}

/// What follows on the stream waits until emulated_open(), or until a thread of the host waits for the GPU, which would
/// last for good otherwise.
void emulated_close(void* stream) {
  closed = true;
  static_cast<simt::Queue*>(stream_of(stream).handle())->submit([before = simt::EmulatedDriver::host_waits()] {
    while (closed && simt::EmulatedDriver::host_waits() == before) std::this_thread::yield();
  });
}
void emulated_open() { closed = false; }

void emulated_finish(void* stream) { stream_of(stream).finish(); }

/// Returns when the stream has done all that is on it, and is no wait for the GPU: what is closed stays so.
void emulated_pass(void* stream) {
  std::atomic<bool> done = false;
  static_cast<simt::Queue*>(stream_of(stream).handle())->submit([&done] { done = true; });
  while (!done) std::this_thread::yield();
}

/// How often a thread of the host has waited for the GPU.
int emulated_waits() { return simt::EmulatedDriver::host_waits(); }

}  // extern "C"

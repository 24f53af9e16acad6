#pragma once
/// cuDNN on one GPU, and the kernels of kernels/cuda around its own.

#include <cstdint>
#include <memory>

#include "backends/cuda/driver.hpp"
#include "backends/cudnn/graph.hpp"
#include "kernels/cuda/elementwise.hpp"

namespace distattn::backends::cudnn {

class Gpu {
 public:
  /// Both must outlive it. Throws Error(environment) if cuDNN does not start.
  Gpu(const Library& library, cuda::Driver& driver);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const Library& library() const { return library_; }
  /// cuDNN takes the GPU from the thread.
  void select() const { stream_->handle(); }
  Target target() const { return {.handle = handle_}; }
  /// The handle, for plans that start on `stream`.
  Handle on(const cuda::Stream& stream) const;

  /// Each starts a kernel.
  void fill(float* into, std::int64_t count, float value, const cuda::Stream& stream) const;
  void merge(const kernels::MergeArgs& args, const cuda::Stream& stream) const;
  void accumulate(const kernels::AccumulateArgs& args, const cuda::Stream& stream) const;
  void convert(const kernels::ConvertArgs& args, const cuda::Stream& stream) const;
  void output_of_delta(const kernels::cuda::OutputOfDeltaArgs& args, const cuda::Stream& stream) const;

 private:
  void load_kernels() const;

  const Library& library_;
  const cuda::Driver& driver_;
  const std::unique_ptr<cuda::Stream> stream_;
  Handle handle_ = nullptr;
};

/// Bytes of an array that others follow.
constexpr std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t alignment = 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

inline const void* advanced(const void* elements, std::int64_t count, DType dtype) {
  return static_cast<const std::byte*>(elements) + count * static_cast<std::int64_t>(size_of(dtype));
}
inline void* advanced(void* elements, std::int64_t count, DType dtype) {
  return static_cast<std::byte*>(elements) + count * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace distattn::backends::cudnn

#include "backends/cudnn/gpu.hpp"

#include "distattn/error.hpp"

namespace distattn::backends::cudnn {

Gpu::Gpu(const Library& library, cuda::Driver& driver)
    : library_(library), driver_(driver), stream_(driver.make_stream(StreamPriority::normal)) {
  select();
  load_kernels();
  library.check(library.create(&handle_), "start");
}

Gpu::~Gpu() {
  try {
    select();
  } catch (const Error&) {
    // the GPU is lost, and the handle with it
  }
  library_.destroy(handle_);
}

Handle Gpu::on(const cuda::Stream& stream) const {
  library_.check(library_.set_stream(handle_, stream.handle()), "take a stream");
  return handle_;
}

/// Before anything runs (backends/cuda/launches.cpp), by launches of nothing.
void Gpu::load_kernels() const {
  fill(nullptr, 0, 0, *stream_);
  merge({}, *stream_);
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    accumulate({.from_dtype = dtype}, *stream_);
    convert({.from_dtype = dtype}, *stream_);
    output_of_delta({.dtype = dtype}, *stream_);
  }
}

void Gpu::fill(float* into, std::int64_t count, float value, const cuda::Stream& stream) const {
  driver_.check(kernels::cuda::fill(into, count, value, stream.handle()), "start filling");
}
void Gpu::merge(const kernels::MergeArgs& args, const cuda::Stream& stream) const {
  driver_.check(kernels::cuda::merge(args, stream.handle()), "start merging");
}
void Gpu::accumulate(const kernels::AccumulateArgs& args, const cuda::Stream& stream) const {
  driver_.check(kernels::cuda::accumulate(args, stream.handle()), "start accumulating");
}
void Gpu::convert(const kernels::ConvertArgs& args, const cuda::Stream& stream) const {
  driver_.check(kernels::cuda::convert(args, stream.handle()), "start converting");
}
void Gpu::output_of_delta(const kernels::cuda::OutputOfDeltaArgs& args, const cuda::Stream& stream) const {
  driver_.check(kernels::cuda::output_of_delta(args, stream.handle()), "start making an output of its sum");
}

}  // namespace distattn::backends::cudnn

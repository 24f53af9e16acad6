#include "kernels/cuda/elementwise.cuh"

#include <algorithm>

#include "distattn/error.hpp"

namespace distattn::kernels::cuda {
namespace {

/// Calls visit(Element{}) with the type behind `dtype`; fp64 never gets here.
template <class Visit>
int with_device_element(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::fp32:
      return visit(float{});
    case DType::bf16:
      return visit(Bf16{});
    case DType::fp16:
      return visit(Fp16{});
    case DType::fp64:
      break;
  }
  DISTATTN_EXPECT(!"an element type of CUDA devices");
  return 0;
}

/// The same with fp64, which tensors of a user may have.
template <class Visit>
int with_tensor_element(DType dtype, Visit visit) {
  return dtype == DType::fp64 ? visit(double{}) : with_device_element(dtype, visit);
}

template <class Args>
int start(void (*kernel)(Args), std::int64_t threads, const Args& args, Stream stream) {
  const std::int64_t blocks = (threads + elementwise_threads - 1) / elementwise_threads;
  return prim::launch(kernel, {static_cast<unsigned>(std::min(blocks, elementwise_blocks)), elementwise_threads, 0},
                      stream, args);
}

}  // namespace

int merge(const MergeArgs& args, Stream stream) {
  DISTATTN_EXPECT(args.accumulator == DType::fp32);
  return with_device_element(args.from_dtype,
                             [&]<class From>(From) { return start(merge_rows<From>, args.rows * 32, args, stream); });
}

int accumulate(const AccumulateArgs& args, Stream stream) {
  DISTATTN_EXPECT(args.accumulator == DType::fp32);
  return with_device_element(args.from_dtype,
                             [&]<class From>(From) { return start(add_elements<From>, args.count, args, stream); });
}

int convert(const ConvertArgs& args, Stream stream) {
  return with_device_element(args.into_dtype, [&]<class Into>(Into) {
    return with_device_element(args.from_dtype, [&]<class From>(From) {
      return start(convert_elements<Into, From>, args.count, args, stream);
    });
  });
}

int delta(const DeltaArgs& args, Stream stream) {
  DISTATTN_EXPECT(args.accumulator == DType::fp32);
  return with_device_element(args.dtype,
                             [&]<class From>(From) { return start(delta_rows<From>, args.rows * 32, args, stream); });
}

int output_of_delta(const OutputOfDeltaArgs& args, Stream stream) {
  return with_device_element(
      args.dtype, [&]<class Element>(Element) { return start(output_rows<Element>, args.rows * 32, args, stream); });
}

int rearrange(const RearrangeArgs& args, Stream stream) {
  DISTATTN_EXPECT(!args.add || args.into_dtype == accumulator_of(args.into_dtype));
  const std::int64_t rows = args.shape[0] * args.shape[1] * args.shape[2];
  return with_tensor_element(args.into_dtype, [&]<class Into>(Into) {
    return with_tensor_element(args.from_dtype, [&]<class From>(From) {
      const RearrangeParams params(args);
      const auto kernel = params.rows_of<Into, From>(4) ? rearrange_rows<Into, From, 4> : rearrange_rows<Into, From, 1>;
      return start(kernel, rows * 32, params, stream);
    });
  });
}

int merge_sinks(const SinkArgs& args, Stream stream) {
  DISTATTN_EXPECT(args.accumulator == DType::fp32);
  return start(merge_sink_rows, args.batch * args.heads * args.tokens * 32, args, stream);
}

int differentiate_sinks(const SinkGradientArgs& args, Stream stream) {
  DISTATTN_EXPECT(args.accumulator == DType::fp32);
  SinkGradientParams params;
  params.logits = static_cast<const float*>(args.logits);
  params.gradients = static_cast<float*>(args.gradients);
  params.heads = args.heads;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(args.heads, elementwise_blocks));
  constexpr std::size_t shared_bytes = elementwise_threads / 32 * sizeof(double);
  std::size_t done = 0;
  do {
    const auto some = args.rows.subspan(done, std::min<std::size_t>(SinkGradientParams::most, args.rows.size() - done));
    std::copy(some.begin(), some.end(), params.rows);
    params.count = static_cast<int>(some.size());
    params.carry = done > 0;
    const int status =
        prim::launch(differentiate_sink_rows, {blocks, elementwise_threads, shared_bytes}, stream, params);
    if (status != 0) return status;
    done += some.size();
  } while (done < args.rows.size());
  return 0;
}

int write_draw(DropoutDraw* into, const DropoutDraw& draw, Stream stream) {
  return prim::launch(write_one_draw, {1, 1, 0}, stream, WriteDrawArgs{into, draw});
}

int fill(float* into, std::int64_t count, float value, Stream stream) {
  return start(fill_elements, count, FillArgs{into, count, value}, stream);
}

}  // namespace distattn::kernels::cuda

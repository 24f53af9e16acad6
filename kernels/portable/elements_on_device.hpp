#pragma once
/// Kernels of elementwise.hpp as what each thread of a device does: an element or a row.

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "kernels/elementwise_rows.hpp"
#include "kernels/portable/device.hpp"

namespace distattn::kernels::portable {

template <class Sum, class From>
struct MergeRow {
  MergeArgs args;
  DISTATTN_HOST_DEVICE void operator()(std::int64_t row) const { merge_rows<Sum, From>(args, row, row + 1); }
};

template <class Sum, class From>
struct AddElement {
  AccumulateArgs args;
  DISTATTN_HOST_DEVICE void operator()(std::int64_t i) const {
    const From from = static_cast<const From*>(args.from)[i];
    static_cast<Sum*>(args.into)[i] += static_cast<Sum>(from);
    if (args.squares != nullptr) args.squares[i] += square_of(from);
  }
};

template <class Into, class From>
struct ConvertElement {
  ConvertArgs args;
  DISTATTN_HOST_DEVICE void operator()(std::int64_t i) const {
    static_cast<Into*>(args.into)[i] = rounded_to<Into>(static_cast<const From*>(args.from)[i]);
  }
};

template <class Sum, class From>
struct DeltaRow {
  DeltaArgs args;
  DISTATTN_HOST_DEVICE void operator()(std::int64_t row) const { delta_rows<From, Sum>(args, row, row + 1); }
};

template <class Into, class From>
struct RearrangeElement {
  RearrangeArgs args;
  // By themselves: not every device may call what std::array is made of.
  std::int64_t shape[4], to[4], of[4];

  explicit RearrangeElement(const RearrangeArgs& arguments) : args(arguments) {
    for (std::size_t axis = 0; axis < 4; ++axis) {
      shape[axis] = args.shape[axis];
      to[axis] = args.into_strides[axis];
      of[axis] = args.from_strides[axis];
    }
  }
  DISTATTN_HOST_DEVICE void operator()(std::int64_t i) const {
    std::int64_t into_at = 0, from_at = 0;
    for (int axis = 3; axis >= 0; --axis) {
      const std::int64_t at = i % shape[axis];
      i /= shape[axis];
      into_at += at * to[axis];
      from_at += at * of[axis];
    }
    const Into value = rounded_to<Into>(static_cast<const From*>(args.from)[from_at]);
    Into& into = static_cast<Into*>(args.into)[into_at];
    if constexpr (std::is_floating_point_v<Into>) {
      into = args.add ? into + value : value;
    } else {
      into = value;
    }
  }
};

template <class Sum>
struct MergeSinkRow {
  SinkArgs args;
  DISTATTN_HOST_DEVICE void operator()(std::int64_t row) const { merge_sink_rows<Sum>(args, row, row + 1); }
};

template <class Sum>
struct SinkHead {
  SinkSums args;
  DISTATTN_HOST_DEVICE void operator()(std::int64_t head) const {
    const auto logit = static_cast<double>(static_cast<const Sum*>(args.logits)[head]);
    Sum& gradient = static_cast<Sum*>(args.gradients)[head];
    double sum = args.add ? static_cast<double>(gradient) : 0;
    for (int i = 0; i < args.count; ++i) sum += sink_gradient_of<Sum>(args.pieces[i], static_cast<int>(head), logit);
    gradient = static_cast<Sum>(sum);
  }
};

template <class T>
struct FillElement {
  T* into;
  T value;
  DISTATTN_HOST_DEVICE void operator()(std::int64_t i) const { into[i] = value; }
};

/// Each calls start(count, functor) with what does the operation for 0 ≤ i < count.
template <class Start>
void visit_elements(const MergeArgs& args, Start start) {
  with_accumulator(args.accumulator, [&]<class Sum>(Sum) {
    with_element(args.from_dtype, [&]<class From>(From) { start(args.rows, MergeRow<Sum, From>{args}); });
  });
}
template <class Start>
void visit_elements(const AccumulateArgs& args, Start start) {
  with_accumulator(args.accumulator, [&]<class Sum>(Sum) {
    with_element(args.from_dtype, [&]<class From>(From) { start(args.count, AddElement<Sum, From>{args}); });
  });
}
template <class Start>
void visit_elements(const ConvertArgs& args, Start start) {
  with_element(args.into_dtype, [&]<class Into>(Into) {
    with_element(args.from_dtype, [&]<class From>(From) { start(args.count, ConvertElement<Into, From>{args}); });
  });
}
template <class Start>
void visit_elements(const DeltaArgs& args, Start start) {
  with_accumulator(args.accumulator, [&]<class Sum>(Sum) {
    with_element(args.dtype, [&]<class From>(From) { start(args.rows, DeltaRow<Sum, From>{args}); });
  });
}
template <class Start>
void visit_elements(const RearrangeArgs& args, Start start) {
  DISTATTN_EXPECT(!args.add || args.into_dtype == accumulator_of(args.into_dtype));
  const std::int64_t count = args.shape[0] * args.shape[1] * args.shape[2] * args.shape[3];
  with_element(args.into_dtype, [&]<class Into>(Into) {
    with_element(args.from_dtype, [&]<class From>(From) { start(count, RearrangeElement<Into, From>(args)); });
  });
}
template <class Start>
void visit_elements(const SinkArgs& args, Start start) {
  with_accumulator(args.accumulator,
                   [&]<class Sum>(Sum) { start(args.batch * args.heads * args.tokens, MergeSinkRow<Sum>{args}); });
}
template <class Start>
void visit_elements(const SinkSums& args, Start start) {
  with_accumulator(args.accumulator, [&]<class Sum>(Sum) { start(args.heads, SinkHead<Sum>{args}); });
}
template <class Start>
void visit_elements(const FillArgs& args, Start start) {
  switch (args.dtype) {
    case DType::fp64:
      return start(args.count, FillElement<double>{static_cast<double*>(args.into), args.value});
    case DType::fp32:
      return start(args.count, FillElement<float>{static_cast<float*>(args.into), static_cast<float>(args.value)});
    case DType::bf16:
    case DType::fp16:
      DISTATTN_EXPECT(args.value == 0);
      return start(args.count, FillElement<std::uint16_t>{static_cast<std::uint16_t*>(args.into), 0});
  }
}

}  // namespace distattn::kernels::portable

#include "distattn/convert.hpp"

#include <cstring>

#include "distattn/error.hpp"
#include "distattn/float16.hpp"

namespace distattn {
namespace {

struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

double widen(double value) { return value; }
float widen(float value) { return value; }
float widen(Bf16 value) { return bf16_to_float(value.bits); }
float widen(Fp16 value) { return fp16_to_float(value.bits); }

template <class Element, class Value>
Element narrow(Value value) {
  if constexpr (std::is_same_v<Element, Bf16>)
    return {float_to_bf16(static_cast<float>(value))};
  else if constexpr (std::is_same_v<Element, Fp16>)
    return {float_to_fp16(static_cast<float>(value))};
  else
    return static_cast<Element>(value);
}

template <class Visit>
void with_element(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::fp64:
      return visit(double{});
    case DType::fp32:
      return visit(float{});
    case DType::bf16:
      return visit(Bf16{});
    case DType::fp16:
      return visit(Fp16{});
  }
}

/// The rows of one token, in every batch and head.
void copy_token(const ConstTensorView& from, std::int64_t from_token, const TensorView& into, std::int64_t into_token) {
  const std::int64_t dim = from.head_dim();
  const bool dense = from.strides[3] == 1 && into.strides[3] == 1;
  const std::int64_t from_step = from.strides[3] * static_cast<std::int64_t>(size_of(from.dtype));
  const std::int64_t into_step = into.strides[3] * static_cast<std::int64_t>(size_of(into.dtype));
  for (std::int64_t b = 0; b < from.batch(); ++b) {
    for (std::int64_t h = 0; h < from.heads(); ++h) {
      const std::byte* const source = from.row(b, from_token, h);
      std::byte* const target = into.row(b, into_token, h);
      if (dense) {
        convert(source, from.dtype, target, into.dtype, dim);
        continue;
      }
      for (std::int64_t x = 0; x < dim; ++x) {
        convert(source + x * from_step, from.dtype, target + x * into_step, into.dtype, 1);
      }
    }
  }
}

/// Calls visit(index in the whole tensor, index in the rank's) for every token that `rank` owns.
template <class Visit>
void for_each_token(std::span<const Segment> segments, Rank rank, std::int64_t first, const ConstTensorView& whole,
                    const ConstTensorView& local, Visit visit) {
  std::int64_t token = 0;
  for (const Segment& segment : segments) {
    if (segment.owner != rank) continue;
    for (std::int64_t i = 0; i < segment.run.count; ++i, ++token) {
      const std::int64_t index = segment.run.at(i) - first;
      DISTATTN_EXPECT(0 <= index && index < whole.sequence() && token < local.sequence());
      visit(index, token);
    }
  }
}

}  // namespace

void convert(const std::byte* from, DType from_dtype, std::byte* into, DType into_dtype, std::int64_t count) {
  if (from_dtype == into_dtype) {
    if (count > 0) std::memcpy(into, from, static_cast<std::size_t>(count) * size_of(into_dtype));
    return;
  }
  with_element(from_dtype, [&]<class From>(From) {
    with_element(into_dtype, [&]<class Into>(Into) {
      const auto* const source = reinterpret_cast<const From*>(from);
      auto* const target = reinterpret_cast<Into*>(into);
      for (std::int64_t i = 0; i < count; ++i) target[i] = narrow<Into>(widen(source[i]));
    });
  });
}

void gather(const ConstTensorView& whole, std::int64_t first, std::span<const Segment> segments, Rank rank,
            const TensorView& local) {
  for_each_token(segments, rank, first, whole, local,
                 [&](std::int64_t index, std::int64_t token) { copy_token(whole, index, local, token); });
}

void scatter(const ConstTensorView& local, std::span<const Segment> segments, Rank rank, std::int64_t first,
             const TensorView& whole) {
  for_each_token(segments, rank, first, whole, local,
                 [&](std::int64_t index, std::int64_t token) { copy_token(local, token, whole, index); });
}

}  // namespace distattn

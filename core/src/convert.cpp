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
  const std::int64_t dim = whole.head_dim();
  const bool dense_rows = whole.strides[3] == 1;
  const auto element_bytes = static_cast<std::int64_t>(size_of(whole.dtype));
  const auto local_bytes = static_cast<std::int64_t>(size_of(local.dtype));
  std::int64_t token = 0;
  for (const Segment& segment : segments) {
    if (segment.owner != rank) continue;
    for (std::int64_t i = 0; i < segment.run.count; ++i, ++token) {
      const std::int64_t s = segment.run.at(i) - first;
      DISTATTN_EXPECT(0 <= s && s < whole.sequence() && token < local.sequence());
      for (std::int64_t b = 0; b < whole.batch(); ++b) {
        for (std::int64_t h = 0; h < whole.heads(); ++h) {
          const std::byte* const from = whole.row(b, s, h);
          std::byte* const into = local.row(b, token, h);
          if (dense_rows) {
            convert(from, whole.dtype, into, local.dtype, dim);
            continue;
          }
          for (std::int64_t x = 0; x < dim; ++x) {
            convert(from + x * whole.strides[3] * element_bytes, whole.dtype, into + x * local_bytes, local.dtype, 1);
          }
        }
      }
    }
  }
}

}  // namespace distattn

#include "distattn/convert.hpp"

#include <cstring>

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

}  // namespace distattn

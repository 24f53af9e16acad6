#pragma once
/// Element types as C++ types: one place where a DType becomes a template argument.

#include <cstdint>
#include <type_traits>

#include "distattn/error.hpp"
#include "distattn/float16.hpp"
#include "distattn/types.hpp"

namespace distattn::kernels {

struct Bf16 {
  std::uint16_t bits;
  constexpr operator float() const { return bf16_to_float(bits); }
  static constexpr Bf16 rounded(float value) { return {float_to_bf16(value)}; }
};

struct Fp16 {
  std::uint16_t bits;
  constexpr operator float() const { return fp16_to_float(bits); }
  static constexpr Fp16 rounded(float value) { return {float_to_fp16(value)}; }
};

/// Type in which products of elements are summed.
template <class Element>
using AccumulatorOf = std::conditional_t<std::is_same_v<Element, double>, double, float>;

template <class Element, class Value>
constexpr Element rounded_to(Value value) {
  if constexpr (std::is_floating_point_v<Element>) {
    return static_cast<Element>(value);
  } else if constexpr (std::is_same_v<Value, double>) {
    return Element::rounded(round_to_odd(value));
  } else {
    return Element::rounded(static_cast<float>(value));
  }
}

/// Calls visit(Element{}) with the type behind `dtype`.
template <class Visit>
decltype(auto) with_element(DType dtype, Visit visit) {
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
  DISTATTN_EXPECT(!"a known element type");
  return visit(float{});
}

/// The same for types that sums are kept in: fp32 or fp64.
template <class Visit>
decltype(auto) with_accumulator(DType dtype, Visit visit) {
  DISTATTN_EXPECT(dtype == DType::fp64 || dtype == DType::fp32);
  return dtype == DType::fp64 ? visit(double{}) : visit(float{});
}

}  // namespace distattn::kernels

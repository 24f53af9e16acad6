#pragma once
/// Vectors of float and double in whatever width this file is compiled for.

#include <cmath>

#include "kernels/vector/drop.hpp"
#include "kernels/vector/packing.hpp"
#include "kernels/vector/tile_shape.hpp"

namespace distattn::kernels::portable::DISTATTN_ISA {

namespace vectors = kernels::vector::DISTATTN_ISA;

/// What does not depend on the type that sums are kept in.
struct Words32 {
  using Words = vectors::SpreadWords;
  using Multiply = vectors::MultiplySpread;
  static constexpr int words = vectors::lanes;

  DISTATTN_INLINE static Words load_words(const std::uint32_t* from) {
    return Words(vectors::Words(from, vectors::stdx::element_aligned));
  }
  DISTATTN_INLINE static void store_words(std::uint32_t* into, Words values) {
    values.together().copy_to(into, vectors::stdx::element_aligned);
  }
  DISTATTN_INLINE static float of_bf16(std::uint16_t bits) { return vectors::widen_bf16(bits); }
  DISTATTN_INLINE static float of_fp16(std::uint16_t bits) {
#if defined(__F16C__)
    return _cvtsh_ss(bits);
#else
    return vectors::widen_fp16(bits);
#endif
  }
};

/// How tile_math.hpp computes with floats: a vector of queries, or of a row's elements.
struct Floats : Words32 {
  using Real = float;
  using Values = vectors::Vector;
  static constexpr int width = vectors::lanes;
  static constexpr bool has_many_registers = vectors::vector_registers == 32;

  DISTATTN_INLINE static Values load(const Real* from) { return vectors::load(from); }
  DISTATTN_INLINE static void store(Real* into, Values values) { vectors::store(into, values); }
  DISTATTN_INLINE static Values fused(Values a, Values b, Values c) { return vectors::fused(a, b, c); }
  DISTATTN_INLINE static Values larger(Values a, Values b) { return vectors::larger(a, b); }
  DISTATTN_INLINE static Values at_most(Values most, Values b) { return vectors::lesser(most, b); }
  DISTATTN_INLINE static Values exp(Values x) { return vectors::exp(x); }
  /// one(x), of what knows such vectors.
  template <class One>
  DISTATTN_INLINE static Values each(Values x, One one) {
    return one(x);
  }
  DISTATTN_INLINE static bool any_nonzero(Values values) { return vectors::stdx::any_of(!(values == Values(0))); }
};

/// The same with doubles.
struct Doubles : Words32 {
  using Real = double;
  using Values = vectors::stdx::native_simd<double>;
  static constexpr int width = static_cast<int>(Values::size());
  static constexpr bool has_many_registers = vectors::vector_registers == 32;

  DISTATTN_INLINE static Values load(const Real* from) { return Values(from, vectors::stdx::vector_aligned); }
  DISTATTN_INLINE static void store(Real* into, Values values) { values.copy_to(into, vectors::stdx::vector_aligned); }
  DISTATTN_INLINE static Values fused(Values a, Values b, Values c) { return a * b + c; }
  // Number by number what needs a comparison: clang 14 mixes up the masks of eight doubles.
  DISTATTN_INLINE static Values larger(Values a, Values b) {
    return each_pair(a, b, [](Real x, Real y) { return x > y ? x : y; });
  }
  DISTATTN_INLINE static Values at_most(Values most, Values b) {
    return each_pair(most, b, [](Real limit, Real x) { return x > limit ? limit : x; });
  }
  template <class One>
  DISTATTN_INLINE static Values each(Values x, One one) {
    return each_pair(x, x, [&](Real number, Real) { return one(number); });
  }
  template <class Two>
  DISTATTN_INLINE static Values each_pair(Values a, Values b, Two two) {
    alignas(64) Real first[width], second[width];
    store(first, a);
    store(second, b);
    for (int i = 0; i < width; ++i) first[i] = two(first[i], second[i]);
    return load(first);
  }
  DISTATTN_INLINE static Values exp(Values x) {
    return each(x, [](Real number) { return std::exp(number); });
  }
  DISTATTN_INLINE static bool any_nonzero(Values values) {
    alignas(64) Real all[width];
    store(all, values);
    bool any = false;
    for (const Real value : all) any = any || !(value == 0);
    return any;
  }
};

}  // namespace distattn::kernels::portable::DISTATTN_ISA

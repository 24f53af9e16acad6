#pragma once
/// How every pass turns the product of a query and a key into a score, and the gradient of a score into that of the
/// product.
///
/// A map of scores turns a product into a level; the level times the map's unit is the score, in units of log2. A
/// forward pass looks for the largest score of a row, so it takes rising levels, whose unit is above 0: the scores are
/// the same to the last bit. A backward pass calls derive(body) with what turns products into curves: levels, and what
/// their derivatives are made of. gradient(d, curve) times factor() is the gradient of the product, given the gradient
/// d of its score. Kernels multiply by the factor once, when they store their sums.
///
/// What depends on where query and key stand comes between: the map's Terms add a bias to levels, and drop weights.

#include <cfloat>
#include <cmath>

#include "kernels/cuda/statistics.cuh"

namespace distattn::kernels::cuda {

/// Neither bias nor dropout.
struct NoTerms {
  __device__ __forceinline__ NoTerms(const AttendParams&, int, int) {}
  __device__ __forceinline__ float biased(float level, std::int64_t, std::int64_t) const { return level; }
  __device__ __forceinline__ float kept(float weight, std::int64_t, std::int64_t) const { return weight; }
};
struct NoLargest {
  __device__ __forceinline__ void see(float) {}
  __device__ __forceinline__ void raise(const AttendParams&, int, int) const {}
};

/// score = scale · product: levels are products, and gradients need nothing.
class LinearScores {
 public:
  static constexpr bool is_linear = true;
  static constexpr Features features{};  ///< what tiles with such scores need
  using Terms = NoTerms;
  using Largest = NoLargest;

  __device__ __forceinline__ explicit LinearScores(const AttendParams& p) : scale_(p.scores.scale) {}

  /// At least FLT_MIN, so that a level of -inf makes a score of -inf.
  __device__ __forceinline__ float rising_unit() const { return fmaxf(fabsf(scale_) * log2_of_e().top, FLT_MIN); }
  __device__ __forceinline__ float unit() const { return copysignf(rising_unit(), scale_); }

  __device__ __forceinline__ float level(float product) const { return product; }
  __device__ __forceinline__ float rising(float product) const { return copysignf(1.0f, scale_) * product; }
  /// The same for tiles of products, in place.
  template <int m_count, int n_count>
  __device__ __forceinline__ void make_rising(float (&s)[m_count][n_count][4]) const {
    if (scale_ < 0) {
      DISTATTN_UNROLL
      for (int m = 0; m < m_count; ++m) {
        DISTATTN_UNROLL
        for (int n = 0; n < n_count; ++n) {
          DISTATTN_UNROLL
          for (int i = 0; i < 4; ++i) s[m][n][i] = -s[m][n][i];
        }
      }
    }
  }

  __device__ __forceinline__ float factor() const { return scale_; }

  struct Curve {
    float level;
  };
  __device__ __forceinline__ float gradient(float d_score, const Curve&) const { return d_score; }
  template <class Body>
  __device__ __forceinline__ void derive(Body body) const {
    body([](float product) { return Curve{product}; });
  }

 private:
  float scale_;
};

}  // namespace distattn::kernels::cuda

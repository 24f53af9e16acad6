#pragma once
/// The map of scores (scores.cuh) that knows all that they may have, for kernels that few problems need.

#include "kernels/cuda/scores.cuh"
#include "kernels/dropout.hpp"

namespace distattn::kernels::cuda {

/// tanh x within 5e-7 of its size, where reciprocals are within 1 ulp, and never beyond 1; NaN stays NaN. A minimax
/// quotient of polynomials up to 9, where it is a little above 1, and 1 from there on. No branch, and one instruction
/// of the special unit that exponentials need; of an exponential of its own, small ones would lose their digits.
__device__ __forceinline__ float tanh_of(float x) {
  constexpr float end = 9.0f;
  x = prim::max_or_nan(-end, prim::min_or_nan(end, x));
  const float square = prim::product(x, x);
  float above = 1.3177489e-8f, below = 7.7040320e-7f;
  above = fmaf(above, square, 2.0481161e-5f);
  below = fmaf(below, square, 3.2729169e-4f);
  above = fmaf(above, square, 3.4878094e-3f);
  below = fmaf(below, square, 2.5847382e-2f);
  above = fmaf(above, square, 1.3374474e-1f);
  below = fmaf(below, square, 4.6707788e-1f);
  above = fmaf(above, square, 1.0f);
  below = fmaf(below, square, 1.0f);
  const float quotient = prim::product(prim::product(x, above), prim::reciprocal(below));
  return prim::max_or_nan(-1.0f, prim::min_or_nan(1.0f, quotient));
}

/// The derivative of tanh, 4p / (1 + p)² of p = e^−2|x|: that 1 − tanh² is small where |x| is large costs it no digits.
/// Within (5 + 3|x|) · 1e-7 of its size; 0 far beyond 43. NaN stays NaN.
__device__ __forceinline__ float derivative_of_tanh(float x) {
  const float power = prim::ex2(-2.0f * log2_of_e().top * fabsf(x)), share = prim::reciprocal(1.0f + power);
  return 4.0f * power * share * share;
}

/// The bias of one query head, and what it drops.
class HeadTerms {
 public:
  __device__ __forceinline__ HeadTerms(const AttendParams& p, int batch, int head)
      : factor_(p.terms.kept), drops_(p.terms.draw != nullptr) {
    if (p.terms.slopes != nullptr) slope_ = prim::load_global(p.terms.slopes + head);
    if (!drops_) return;
    const DropoutDraw draw = prim::load_global(p.terms.draw);
    draws_.key0 = draw.key0;
    draws_.key1 = draw.key1;
    draws_.offset = draw.offset;
    draws_.head = static_cast<std::uint32_t>(batch * p.terms.heads_of_all + p.heads.q0 + head);
    draws_.limit = p.terms.drop_below;
  }
  /// slope · (key − query) more, however many instructions it comes from: distances below 2^24 are exact.
  __device__ __forceinline__ float biased(float level, float distance) const { return fmaf(slope_, distance, level); }
  __device__ __forceinline__ float biased(float level, std::int64_t query, std::int64_t key) const {
    return biased(level, static_cast<float>(key - query));
  }
  __device__ __forceinline__ bool drops() const { return drops_; }
  __device__ __forceinline__ float factor() const { return factor_; }
  __device__ __forceinline__ FourWords<std::uint32_t> words(std::uint32_t query, std::uint32_t key) const {
    return draws_.words(query, key >> 2);
  }
  /// Of the words that the key and its neighbours draw.
  __device__ __forceinline__ bool keeps(const FourWords<std::uint32_t>& words, std::uint32_t key) const {
    const std::uint32_t even = (key & 2) != 0 ? words.of[2] : words.of[0];
    const std::uint32_t odd = (key & 2) != 0 ? words.of[3] : words.of[1];
    return draws_.keeps((key & 1) != 0 ? odd : even);
  }
  /// The weight of a pair, or 0 if it is dropped.
  __device__ __forceinline__ float kept(float weight, std::int64_t query, std::int64_t key) const {
    if (!drops_) return weight;
    const auto of_query = static_cast<std::uint32_t>(query), of_key = static_cast<std::uint32_t>(key);
    return keeps(words(of_query, of_key), of_key) ? weight * factor_ : 0.0f;
  }

 private:
  float slope_ = 0, factor_;
  bool drops_;
  HeadDropout draws_;
};

/// The largest level that a thread has seen; those of GeneralScores are scores.
class LargestLevel {
 public:
  __device__ __forceinline__ void see(float level) { level_ = prim::max_or_nan(level_, level); }
  /// All lanes of a warp, whose rows are of one head.
  __device__ __forceinline__ void raise(const AttendParams& p, int batch, int head) const {
    if (p.terms.largest == nullptr) return;
    float largest = level_;
    for (int step = 16; step > 0; step /= 2) {
      largest = prim::max_or_nan(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    }
    if (threadIdx.x % 32 == 0) prim::raise_global(p.terms.largest + batch * p.heads.q_count + head, largest);
  }

 private:
  float level_ = -INFINITY;
};

/// All that scores may have, each where the problem has it: score = cap · tanh(scale · product / cap) + bias. Levels
/// are scores.
class GeneralScores {
 public:
  static constexpr bool is_linear = false;
  static constexpr Features features = score_features.without({Feature::sink_logits});
  using Terms = HeadTerms;
  using Largest = LargestLevel;

  __device__ __forceinline__ explicit GeneralScores(const AttendParams& p)
      : scale_(p.scores.scale), cap_(p.terms.cap), inverse_(p.terms.inverse_cap) {}

  __device__ __forceinline__ float rising_unit() const { return log2_of_e().top; }
  __device__ __forceinline__ float unit() const { return rising_unit(); }

  __device__ __forceinline__ float level(float product) const {
    const float score = prim::product(product, scale_);
    return cap_ != 0 ? capped(score) : score;
  }
  __device__ __forceinline__ float rising(float product) const { return level(product); }
  template <int m_count, int n_count>
  __device__ __forceinline__ void make_rising(float (&s)[m_count][n_count][4]) const {
    derive([&](auto curve_of) {
      DISTATTN_UNROLL
      for (int m = 0; m < m_count; ++m) {
        DISTATTN_UNROLL
        for (int n = 0; n < n_count; ++n) {
          DISTATTN_UNROLL
          for (int i = 0; i < 4; ++i) s[m][n][i] = curve_of(s[m][n][i]).level;
        }
      }
    });
  }

  __device__ __forceinline__ float factor() const { return scale_; }

  struct Curve {
    float level, derivative;
  };
  __device__ __forceinline__ float gradient(float d_score, const Curve& curve) const {
    return d_score * curve.derivative;
  }
  /// Whether there is a cap is asked once, not in the middle of every loop.
  template <class Body>
  __device__ __forceinline__ void derive(Body body) const {
    if (cap_ == 0) return body([this](float product) { return Curve{prim::product(product, scale_), 1.0f}; });
    body([this](float product) {
      const float score = prim::product(product, scale_);
      return Curve{capped(score), derivative_of_tanh(prim::product(score, inverse_))};
    });
  }

 private:
  __device__ __forceinline__ float capped(float score) const {
    return prim::product(cap_, tanh_of(prim::product(score, inverse_)));
  }

  float scale_, cap_, inverse_;
};

}  // namespace distattn::kernels::cuda

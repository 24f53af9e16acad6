#pragma once
/// What the keys of a segment have in common, as a bias gives it to them. It adds as much to all products of a query,
/// and nothing to dQ = Σ dS·k but what rounding makes of Σ dS = 0: taken out of the keys, it rounds once a score and
/// once a block of queries, not with every product.

#include <algorithm>

#include "kernels/vector/operands.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Keys that are looked at first, far from each other: most tensors have nothing in common.
inline constexpr int most_samples = 16;

/// Elements of some lanes of all keys that are far from `shared` are not shared: a few keys of another kind, as a first
/// token's, that the samples missed would lose to the rounding of what is taken out and added again.
template <class Rows>
inline void drop_unshared(const Rows& keys, DType dtype, std::int64_t count, int some, float* buffer, float* shared) {
  alignas(64) float farthest[lanes] = {};
  for (std::int64_t key = 0; key < count; ++key) {
    const float* const at = widened(keys_from(keys, dtype, key), dtype, 1, some, buffer).data;
    for (int lane = 0; lane < some; ++lane) {
      const float far = __builtin_fabsf(at[lane] - shared[lane]);
      farthest[lane] = far <= farthest[lane] ? farthest[lane] : far;  // NaN is far
    }
  }
  for (int lane = 0; lane < some; ++lane) {
    if (!(farthest[lane] <= __builtin_fabsf(shared[lane]) * 0.75f)) shared[lane] = 0.f;
  }
}

/// into[x] = about the element x of all keys where they differ by little of it, 0 elsewhere and behind `dim`. Returns
/// whether there is any. Nothing but the keys decides: every pass over a segment takes the same out. `into` has room
/// for whole vectors, `buffer` for a key.
template <class Rows>
inline bool find_shared_key(const Rows& keys, DType dtype, std::int64_t count, int dim, float* buffer, float* into) {
  alignas(64) float least[lanes] = {}, most[lanes] = {};
  const std::int64_t samples = std::min<std::int64_t>(count, most_samples);
  bool any = false;
  for (int x = 0; x < dim; x += lanes) {
    const int some = smaller(lanes, dim - x);
    Rows from = keys;
    from.data = static_cast<const std::byte*>(keys.data) + x * size_of(dtype);
    for (std::int64_t i = 0; i < samples; ++i) {
      const std::int64_t key = (2 * i + 1) * count / (2 * samples);
      const float* const at = widened(keys_from(from, dtype, key), dtype, 1, some, buffer).data;
      for (int lane = 0; lane < some; ++lane) {
        least[lane] = i == 0 || at[lane] < least[lane] ? at[lane] : least[lane];
        most[lane] = i == 0 || at[lane] > most[lane] ? at[lane] : most[lane];
      }
    }
    bool candidates = false;
    for (int lane = 0; lane < lanes; ++lane) {
      const float spread = (most[lane] - least[lane]) * 4, twice = __builtin_fabsf(most[lane] + least[lane]);
      const bool shared = lane < some && samples > 0 && spread <= twice && twice < -minus_infinity;
      into[x + lane] = shared ? as_operand(least[lane] / 2 + most[lane] / 2) : 0.f;
      candidates = candidates || into[x + lane] != 0.f;
    }
    if (!candidates) continue;
    drop_unshared(from, dtype, count, some, buffer, into + x);
    for (int lane = 0; lane < some; ++lane) any = any || into[x + lane] != 0.f;
  }
  return any;
}

/// Whether the elements of a row are numbers. Where they are not, nothing may be taken out: ∞ − ∞ is NaN.
inline bool is_finite(const float* row, int dim) {
  float zeros = 0;
  for (int x = 0; x < dim; ++x) zeros += row[x] * 0.f;
  return zeros == 0.f;
}

/// What a shared key adds to a query's products, which have the factor of scores (kernels/scores.hpp).
inline float shared_product(const float* q, int dim, float factor, const float* shared) {
  double sum = 0;
  for (int x = 0; x < dim; ++x) {
    if (shared[x] != 0.f) sum += static_cast<double>(q[x]) * static_cast<double>(shared[x]);
  }
  return static_cast<float>(sum * static_cast<double>(factor));
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA

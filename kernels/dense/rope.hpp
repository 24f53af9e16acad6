#pragma once
/// Rotary position embedding: halves rotated (x[i] with x[i + dim/2]), base 10,000.

#include <cstdint>
#include <span>
#include <vector>

namespace distattn::kernels::dense {

inline constexpr double rope_base = 10000.0;

/// Cosines and sines of pos · base^(−2i/dim) for a rank's tokens, made once from their positions in the whole sequence:
/// how they are sharded does not change the angle.
template <class T>
class RotaryTable {
 public:
  RotaryTable(std::span<const std::int64_t> positions, int head_dim);

  /// Rotates x [tokens][heads][head_dim] in place.
  void rotate(T* x, int heads) const;
  /// The inverse rotation, which is also its gradient.
  void rotate_back(T* x, int heads) const;

 private:
  void apply(T* x, int heads, T direction) const;

  std::int64_t tokens_ = 0;
  int half_ = 0;
  std::vector<T> cos_, sin_;  // [tokens][half]
};

}  // namespace distattn::kernels::dense

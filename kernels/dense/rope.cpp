#include "kernels/dense/rope.hpp"

#include <cmath>

#include "distattn/index.hpp"

namespace distattn::kernels::dense {

template <class T>
RotaryTable<T>::RotaryTable(std::span<const std::int64_t> positions, int head_dim)
    : tokens_(static_cast<std::int64_t>(positions.size())), half_(head_dim / 2) {
  std::vector<double> frequency(index(half_));
  for (int i = 0; i < half_; ++i) frequency[index(i)] = std::pow(rope_base, -2.0 * i / head_dim);
  cos_.reserve(positions.size() * frequency.size());
  sin_.reserve(positions.size() * frequency.size());
  for (const std::int64_t position : positions) {
    for (const double f : frequency) {
      const double angle = static_cast<double>(position) * f;
      cos_.push_back(static_cast<T>(std::cos(angle)));
      sin_.push_back(static_cast<T>(std::sin(angle)));
    }
  }
}

template <class T>
void RotaryTable<T>::rotate(T* x, int heads) const {
  apply(x, heads, T(1));
}

template <class T>
void RotaryTable<T>::rotate_back(T* x, int heads) const {
  apply(x, heads, T(-1));
}

template <class T>
void RotaryTable<T>::apply(T* x, int heads, T direction) const {
  for (std::int64_t token = 0; token < tokens_; ++token) {
    const T* c = cos_.data() + token * half_;
    const T* s = sin_.data() + token * half_;
    for (int head = 0; head < heads; ++head) {
      T* low = x + (token * heads + head) * 2 * half_;
      T* high = low + half_;
      for (int i = 0; i < half_; ++i) {
        const T a = low[i], b = high[i], sine = direction * s[i];
        low[i] = a * c[i] - b * sine;
        high[i] = a * sine + b * c[i];
      }
    }
  }
}

template class RotaryTable<float>;
template class RotaryTable<double>;

}  // namespace distattn::kernels::dense

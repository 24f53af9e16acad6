#pragma once
/// AdamW (Loshchilov & Hutter, Algorithm 2) on a flat run of parameters.

#include <span>

namespace distattn::kernels::dense {

struct AdamWOptions {
  double learning_rate = 3e-3;
  double beta1 = 0.9, beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

/// One update, the `step`-th from 1 on: moments first and second, which start at zero, then the parameters.
template <class T>
void adamw(const AdamWOptions& options, int step, std::span<T> parameters, std::span<const T> gradients,
           std::span<T> first, std::span<T> second);

}  // namespace distattn::kernels::dense

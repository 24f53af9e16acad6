#include "backends/max_logits.hpp"

#include <algorithm>
#include <cmath>

#include "distattn/convert.hpp"
#include "distattn/index.hpp"

namespace distattn::backends {

MaxLogits::MaxLogits(const Outline& outline)
    : sharding_(outline.sharding), dtype_(outline.sharding.problem.accumulator()) {
  const Problem& problem = sharding_.problem;
  if (!problem.scores.max_logit || outline.pass != Pass::forward) return;
  largest_.resize(first_of(static_cast<int>(sharding_.groups.size())));
}

/// Heads, of all sequences, that come before the group's.
std::size_t MaxLogits::first_of(int group) const {
  std::int64_t heads = 0;
  for (int before = 0; before < group; ++before) heads += sharding_.groups[index(before)].q_count;
  return index(heads * sharding_.problem.batch);
}

void* MaxLogits::of(int group) {
  if (largest_.empty()) return nullptr;
  return reinterpret_cast<std::byte*>(largest_.data()) + first_of(group) * size_of(dtype_);
}

void MaxLogits::begin() {
  if (dtype_ == DType::fp64) {
    std::ranges::fill(largest_, -INFINITY);
  } else {
    std::fill_n(reinterpret_cast<float*>(largest_.data()), largest_.size(), -INFINITY);
  }
}

void MaxLogits::store(const TensorView& tensor) const {
  if (largest_.empty()) return;
  const auto* from = reinterpret_cast<const std::byte*>(largest_.data());
  for (const HeadGroup& group : sharding_.groups) {
    for (std::int64_t b = 0; b < sharding_.problem.batch; ++b) {
      for (int head = 0; head < group.q_count; ++head, from += size_of(dtype_)) {
        convert(from, dtype_, tensor.row(b, 0, group.q0 + head), tensor.dtype, 1);
      }
    }
  }
}

}  // namespace distattn::backends

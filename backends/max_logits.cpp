#include "backends/max_logits.hpp"

#include <cmath>

#include "distattn/index.hpp"

namespace distattn::backends {

MaxLogits::MaxLogits(const Outline& outline,
                     const std::function<std::shared_ptr<std::byte>(std::size_t bytes)>& allocate)
    : sharding_(outline.sharding), dtype_(outline.sharding.problem.accumulator()) {
  if (!sharding_.problem.scores.max_logit || outline.pass != Pass::forward) return;
  const std::int64_t count = first_of(static_cast<int>(sharding_.groups.size()));
  largest_ = allocate(index(count) * size_of(dtype_));
}

/// Heads, of all sequences, that come before the group's.
std::int64_t MaxLogits::first_of(int group) const {
  std::int64_t heads = 0;
  for (int before = 0; before < group; ++before) heads += sharding_.groups[index(before)].q_count;
  return heads * sharding_.problem.batch;
}

void* MaxLogits::of(int group) const {
  if (largest_ == nullptr) return nullptr;
  return largest_.get() + first_of(group) * static_cast<std::int64_t>(size_of(dtype_));
}

void MaxLogits::begin(StagingKernels& kernels) const {
  if (largest_ == nullptr) return;
  kernels.fill({dtype_, largest_.get(), first_of(static_cast<int>(sharding_.groups.size())), -INFINITY});
}

void MaxLogits::store(const TensorView& tensor, StagingKernels& kernels) const {
  if (largest_ == nullptr) return;
  for (int group = 0; group < static_cast<int>(sharding_.groups.size()); ++group) {
    const HeadGroup& heads = sharding_.groups[index(group)];
    kernels::RearrangeArgs args;
    args.shape = {sharding_.problem.batch, 1, heads.q_count, 1};
    args.into_dtype = tensor.dtype;
    args.into = tensor.row(0, 0, heads.q0);
    args.into_strides = {tensor.strides[0], 0, tensor.strides[2], 1};
    args.from_dtype = dtype_;
    args.from = of(group);
    args.from_strides = {heads.q_count, 0, 1, 1};
    kernels.rearrange({&args, 1});
  }
}

}  // namespace distattn::backends

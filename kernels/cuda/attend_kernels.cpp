#include "kernels/cuda/attend_kernels.hpp"

#include <algorithm>

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {

std::span<const AttendKernel> attend_kernels() {
  static const std::vector<AttendKernel> all = [] {
    std::vector<AttendKernel> kernels;
    for (const auto& some :
         {hopper_forward_instances(), hopper_gradients_instances(), hopper_query_gradient_instances(),
          hopper_wide_gradients_instances(), forward_instances(), query_gradient_instances(), key_gradients_instances(),
          plain_instances(), hopper_variants()}) {
      kernels.insert(kernels.end(), some.begin(), some.end());
    }
    return kernels;
  }();
  return all;
}

namespace {

/// Whether neighbouring query heads, `count` at a time, have one key head.
bool share_keys(const Heads& heads, int count) {
  return heads.q_count % count == 0 && heads.q0 % count == 0 && heads.per_kv % count == 0;
}

bool runs_on(const Capability& capability, const AttendKernel& kernel) {
  return kernel.architecture <= capability.architecture && capability.architecture <= kernel.last_architecture &&
         kernel.shared_bytes <= capability.block_shared_bytes;
}

bool is_variant(const AttendKernel& kernel, const AttendKernel& usual, const Heads& heads) {
  return !kernel.variant.empty() && share_keys(heads, kernel.tile.heads) && kernel.pass == usual.pass &&
         kernel.dtype == usual.dtype && kernel.architecture == usual.architecture &&
         kernel.head_dim == usual.head_dim && kernel.value_dim == usual.value_dim;
}

}  // namespace

const AttendKernel* find_attend_kernel(TilePass pass, const TileShape& shape, const Capability& capability,
                                       std::string_view variant, std::int64_t queries) {
  const auto usual = [&](const AttendKernel& kernel) {
    return kernel.variant.empty() && kernel.pass == pass && kernel.dtype == shape.dtype &&
           runs_on(capability, kernel) && shape.head_dim <= kernel.head_dim && shape.value_dim <= kernel.value_dim &&
           (kernel.tile.heads == 1 || (queries <= kernel.tile.rows && share_keys(shape.heads, kernel.tile.heads)));
  };
  const auto all = attend_kernels();
  const auto found = std::find_if(all.begin(), all.end(), usual);
  if (found == all.end()) return nullptr;
  for (const AttendKernel& kernel : all) {
    if (kernel.variant == variant && is_variant(kernel, *found, shape.heads)) return &kernel;
  }
  return &*found;
}

std::vector<std::string> attend_variants(TilePass pass, const TileShape& shape, const Capability& capability) {
  std::vector<std::string> names;
  const AttendKernel* const usual = find_attend_kernel(pass, shape, capability);
  if (usual == nullptr) return names;
  for (const AttendKernel& kernel : attend_kernels()) {
    if (is_variant(kernel, *usual, shape.heads)) names.emplace_back(kernel.variant);
  }
  return names;
}

std::string why_no_attend_kernel(DType dtype, int head_dim, int value_dim, const Capability& capability) {
  for (const TilePass pass : {TilePass::forward, TilePass::query_gradient, TilePass::key_gradients}) {
    if (find_attend_kernel(pass, {dtype, 1, {}, head_dim, value_dim}, capability) != nullptr) continue;
    std::string existing;
    for (const AttendKernel& kernel : attend_kernels()) {
      if (kernel.pass != pass || !kernel.variant.empty() || kernel.tile.heads > 1) continue;
      existing += std::string(existing.empty() ? "" : ", ") + name_of(kernel.dtype) + " " +
                  std::to_string(kernel.head_dim) + "/" + std::to_string(kernel.value_dim) + " from sm_" +
                  std::to_string(kernel.architecture) + " in " + std::to_string(kernel.shared_bytes) + " bytes";
    }
    return std::string("no CUDA kernel for ") + name_of(dtype) + " with head dimension " + std::to_string(head_dim) +
           "/" + std::to_string(value_dim) + " on sm_" + std::to_string(capability.architecture) + " in the " +
           std::to_string(capability.block_shared_bytes) + " bytes of shared memory that a block may have (there are " +
           existing + ")";
  }
  return "";
}

}  // namespace distattn::kernels::cuda

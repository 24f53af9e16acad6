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

bool is_variant(const AttendKernel& kernel, const AttendKernel& usual) {
  return !kernel.variant.empty() && kernel.pass == usual.pass && kernel.dtype == usual.dtype &&
         kernel.architecture == usual.architecture && kernel.head_dim == usual.head_dim &&
         kernel.value_dim == usual.value_dim;
}

}  // namespace

const AttendKernel* find_attend_kernel(TilePass pass, DType dtype, int head_dim, int value_dim, int architecture,
                                       std::string_view variant) {
  const auto usual = [&](const AttendKernel& kernel) {
    return kernel.variant.empty() && kernel.pass == pass && kernel.dtype == dtype &&
           kernel.architecture <= architecture && architecture <= kernel.last_architecture &&
           head_dim <= kernel.head_dim && value_dim <= kernel.value_dim;
  };
  const auto all = attend_kernels();
  const auto found = std::find_if(all.begin(), all.end(), usual);
  if (found == all.end()) return nullptr;
  for (const AttendKernel& kernel : all) {
    if (kernel.variant == variant && is_variant(kernel, *found)) return &kernel;
  }
  return &*found;
}

std::vector<std::string> attend_variants(TilePass pass, DType dtype, int head_dim, int value_dim, int architecture) {
  std::vector<std::string> names;
  const AttendKernel* const usual = find_attend_kernel(pass, dtype, head_dim, value_dim, architecture);
  if (usual == nullptr) return names;
  for (const AttendKernel& kernel : attend_kernels()) {
    if (is_variant(kernel, *usual)) names.emplace_back(kernel.variant);
  }
  return names;
}

std::string why_no_attend_kernel(DType dtype, int head_dim, int value_dim, int architecture) {
  for (const TilePass pass : {TilePass::forward, TilePass::query_gradient, TilePass::key_gradients}) {
    if (find_attend_kernel(pass, dtype, head_dim, value_dim, architecture) != nullptr) continue;
    std::string existing;
    for (const AttendKernel& kernel : attend_kernels()) {
      if (kernel.pass != pass || !kernel.variant.empty()) continue;
      existing += std::string(existing.empty() ? "" : ", ") + name_of(kernel.dtype) + " " +
                  std::to_string(kernel.head_dim) + "/" + std::to_string(kernel.value_dim) + " from sm_" +
                  std::to_string(kernel.architecture);
    }
    return std::string("no CUDA kernel for ") + name_of(dtype) + " with head dimension " + std::to_string(head_dim) +
           "/" + std::to_string(value_dim) + " on sm_" + std::to_string(architecture) + " (there are " + existing + ")";
  }
  return "";
}

}  // namespace distattn::kernels::cuda

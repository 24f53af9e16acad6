#include "kernels/cuda/attend_kernels.hpp"

#include <algorithm>

#include "kernels/cuda/instances.hpp"

namespace distattn::kernels::cuda {

std::span<const AttendKernel> attend_kernels() {
  static const std::vector<AttendKernel> all = [] {
    std::vector<AttendKernel> kernels;
    for (const auto& some :
         {hopper_forward_instances(), hopper_gradients_instances(), hopper_query_gradient_instances(),
          hopper_wide_gradients_instances(), hopper_general_instances(), forward_instances(),
          query_gradient_instances(), key_gradients_instances(), general_instances(), wide_instances(),
          plain_instances(), general_plain_instances(), wide_plain_instances(), hopper_variants()}) {
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

/// What its pass needs of a kernel: largest scores are known when the forward pass has ended.
Features needed_by(const AttendRequest& request) {
  const Features features = features_of(request.shape);
  return request.pass == TilePass::forward ? features : features.without({Feature::max_logit});
}

/// The first kernel that fits, which no choice has named; null if there is none.
const AttendKernel* first_that_fits(const AttendRequest& request, const Capability& capability) {
  const TileShape& shape = request.shape;
  const auto fits = [&](const AttendKernel& kernel) {
    return !kernel.on_request && kernel.pass == request.pass && needed_by(request).without(kernel.features).empty() &&
           runs_on(capability, kernel) && shape.head_dim <= kernel.head_dim && shape.value_dim <= kernel.value_dim &&
           (kernel.tile.heads == 1 ||
            (request.queries <= kernel.tile.rows && share_keys(shape.heads, kernel.tile.heads)));
  };
  const auto all = attend_kernels();
  const auto found = std::find_if(all.begin(), all.end(), fits);
  return found == all.end() ? nullptr : &*found;
}

/// first_that_fits() and what may take its place.
std::vector<const AttendKernel*> family_of(const AttendKernel& first, const Heads& heads,
                                           const Capability& capability) {
  std::vector<const AttendKernel*> family;
  for (const AttendKernel& kernel : attend_kernels()) {
    if (kernel.pass == first.pass && kernel.features == first.features && kernel.architecture == first.architecture &&
        kernel.head_dim == first.head_dim && kernel.value_dim == first.value_dim && runs_on(capability, kernel) &&
        share_keys(heads, kernel.tile.heads)) {
      family.push_back(&kernel);
    }
  }
  return family;
}

const AttendKernel* named(std::string_view name, std::span<const AttendKernel* const> family) {
  const auto found =
      std::find_if(family.begin(), family.end(), [&](const auto* kernel) { return kernel->name == name; });
  return found == family.end() ? nullptr : *found;
}

/// What `choices` name in the place of `first`; empty if nothing.
std::string_view chosen(const AttendKernel& first, Coverage coverage, std::span<const AttendChoice> choices) {
  if (first.tile.heads > 1) return {};
  for (const AttendChoice& choice : choices) {
    if (choice.pass == first.pass && choice.architecture == first.architecture && choice.head_dim == first.head_dim &&
        choice.value_dim == first.value_dim && choice.coverage == coverage) {
      return choice.name;
    }
  }
  return {};
}

}  // namespace

const AttendKernel* find_attend_kernel(const AttendRequest& request, const Capability& capability,
                                       std::span<const AttendChoice> choices) {
  const AttendKernel* const first = first_that_fits(request, capability);
  if (first == nullptr) return nullptr;
  const auto family = family_of(*first, request.shape.heads, capability);
  for (const std::string_view name : {request.name, chosen(*first, request.coverage, choices)}) {
    if (const AttendKernel* const kernel = named(name, family)) return kernel;
  }
  return first;
}

std::vector<const AttendKernel*> attend_family(const AttendRequest& request, const Capability& capability) {
  const AttendKernel* const first = first_that_fits(request, capability);
  return first == nullptr ? std::vector<const AttendKernel*>{} : family_of(*first, request.shape.heads, capability);
}

Features attend_features(Pass pass, const Capability& capability) {
  Features features;
  for (const AttendKernel& kernel : attend_kernels()) {
    const bool is_forward = kernel.pass == TilePass::forward;
    if (is_forward == (pass == Pass::forward) && runs_on(capability, kernel)) features = features.with(kernel.features);
  }
  return features;
}

std::string why_no_attend_kernel(const TileShape& shape, const Capability& capability) {
  for (const TilePass pass : {TilePass::forward, TilePass::query_gradient, TilePass::key_gradients}) {
    if (find_attend_kernel({pass, shape}, capability) != nullptr) continue;
    std::string existing;
    for (const AttendKernel& kernel : attend_kernels()) {
      if (kernel.pass != pass || kernel.on_request || kernel.tile.heads > 1) continue;
      existing += std::string(existing.empty() ? "" : ", ") + names_of(kernel.features.without({Feature::shared_kv})) +
                  " " + std::to_string(kernel.head_dim) + "/" + std::to_string(kernel.value_dim) + " from sm_" +
                  std::to_string(kernel.architecture) + " in " + std::to_string(kernel.shared_bytes) + " bytes";
    }
    return "no CUDA kernel for " + names_of(features_of(shape)) + " with head dimension " +
           std::to_string(shape.head_dim) + "/" + std::to_string(shape.value_dim) + " on sm_" +
           std::to_string(capability.architecture) + " in the " + std::to_string(capability.block_shared_bytes) +
           " bytes of shared memory that a block may have (there are " + existing + ")";
  }
  return "";
}

}  // namespace distattn::kernels::cuda

#pragma once
/// The kernels that each source file instantiates, tightest first within an element type.

#include <string>
#include <vector>

#include "kernels/cuda/attend_kernels.hpp"
#include "kernels/element.hpp"

namespace distattn::kernels::cuda {

/// For sm_90a alone; none where that is not compiled for.
std::vector<AttendKernel> hopper_forward_instances();
std::vector<AttendKernel> hopper_gradients_instances();
std::vector<AttendKernel> hopper_query_gradient_instances();
std::vector<AttendKernel> hopper_wide_gradients_instances();
/// Others that a choice may name, when bench --kernel attend-variants has found them faster.
std::vector<AttendKernel> hopper_variants();
/// With all that scores may have (scores.cuh).
std::vector<AttendKernel> hopper_general_instances();
std::vector<AttendKernel> forward_instances();
std::vector<AttendKernel> query_gradient_instances();
std::vector<AttendKernel> key_gradients_instances();
/// fp32, every pass.
std::vector<AttendKernel> plain_instances();
/// Every pass with all that scores may have.
std::vector<AttendKernel> general_instances();
std::vector<AttendKernel> general_plain_instances();
/// Every pass up to the widest heads, as latents have them, with all that scores may have.
std::vector<AttendKernel> wide_instances();
std::vector<AttendKernel> wide_plain_instances();

template <class Element>
inline constexpr DType dtype_of_element = DType::fp32;
template <>
inline constexpr DType dtype_of_element<Bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of_element<Fp16> = DType::fp16;

/// As AttendKernel has it.
inline std::string kernel_name(TilePass pass, const TileSize& tile) {
  std::string name = name_of(pass);
  name.append(" ").append(std::to_string(tile.rows)).append("x").append(std::to_string(tile.columns));
  if (tile.heads > 1) name.append(" of ").append(std::to_string(tile.heads)).append(" heads");
  return name;
}

/// The entry of a kernel that its shape describes.
template <class Shape>
AttendKernel instance(TilePass pass, int architecture, int (*launch)(const AttendParams&, unsigned, Stream)) {
  return {.pass = pass,
          .features = Features{feature_of(dtype_of_element<typename Shape::Element>), Feature::shared_kv}.with(
              Shape::Map::features),
          .head_dim = Shape::head_dim,
          .value_dim = Shape::value_dim,
          .architecture = architecture,
          .shared_bytes = Shape::shared_bytes,
          .tile = Shape::tile,
          .owner = pass == TilePass::key_gradients || pass == TilePass::gradients ? Owner::keys : Owner::queries,
          .launch = launch,
          .name = kernel_name(pass, Shape::tile)};
}

/// The same of a kernel for Hopper alone.
template <class Shape>
AttendKernel hopper_instance(TilePass pass, int (*launch)(const AttendParams&, unsigned, Stream),
                             DescribeTensors describe) {
  AttendKernel kernel = instance<Shape>(pass, 90, launch);
  kernel.features = kernel.features.without({Feature::shared_kv});
  kernel.last_architecture = 90;
  kernel.describe = describe;
  return kernel;
}

}  // namespace distattn::kernels::cuda

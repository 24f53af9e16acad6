#pragma once
/// The attention kernels that exist, as a table: what is looked up is what runs, and a miss can say what there is.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/attend_params.hpp"
#include "kernels/cuda/launch.hpp"

namespace distattn::kernels::cuda {

/// The passes over tiles. Backward is two kernels, each of which writes what its blocks own, in one order: results do
/// not depend on chance. Or it is one, `gradients`, that adds to dq whatever its carry, in any order.
enum class TilePass : std::uint8_t { forward, query_gradient, key_gradients, gradients };

struct AttendKernel {
  TilePass pass{};
  DType dtype{};
  int head_dim = 0, value_dim = 0;  ///< largest that it computes
  int architecture = 0;             ///< lowest compute capability, as 80
  int last_architecture = 1000;     ///< highest: what is written for one generation does not run on the next
  TileSize tile;                    ///< its lists are made for
  Owner owner{};
  int (*launch)(const AttendParams& params, unsigned grid, Stream stream) = nullptr;
  DescribeTensors describe = nullptr;  ///< for its plans; null if it needs no maps
  std::string_view variant = {};       ///< of the usual kernel, which has none: to be compared with it
};

/// All kernels: those of one generation before those of many, then tightest first among those of one pass and dtype.
std::span<const AttendKernel> attend_kernels();

/// Of an operation, when it may have any number.
inline constexpr std::int64_t many_queries = std::int64_t{1} << 62;

/// The first kernel that computes the shape on a device of that compute capability, or its variant of that name where
/// it has one for the shape; null if there is none. A kernel whose blocks take several heads is for operations of no
/// more `queries` than a block takes of each: with one head its block would be half empty.
const AttendKernel* find_attend_kernel(TilePass pass, const TileShape& shape, int architecture,
                                       std::string_view variant = {}, std::int64_t queries = many_queries);

/// Variants of what find_attend_kernel finds.
std::vector<std::string> attend_variants(TilePass pass, const TileShape& shape, int architecture);

/// Why find_attend_kernel finds nothing, naming what exists; empty if it finds something for every pass.
std::string why_no_attend_kernel(DType dtype, int head_dim, int value_dim, int architecture);

}  // namespace distattn::kernels::cuda

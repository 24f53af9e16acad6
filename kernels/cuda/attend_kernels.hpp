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

/// What of a device decides which kernels it runs.
struct Capability {
  int architecture = 0;                                   ///< compute capability, as 90
  std::size_t block_shared_bytes = std::size_t{1} << 62;  ///< that a block may ask for: less on small GPUs
};

struct AttendKernel {
  TilePass pass{};
  DType dtype{};
  int head_dim = 0, value_dim = 0;  ///< largest that it computes
  int architecture = 0;             ///< lowest compute capability, as 80
  int last_architecture = 1000;     ///< highest: what is written for one generation does not run on the next
  std::size_t shared_bytes = 0;     ///< of a block
  TileSize tile;                    ///< its lists are made for
  Owner owner{};
  /// Without a grid the kernel is only loaded.
  int (*launch)(const AttendParams& params, unsigned grid, Stream stream) = nullptr;
  DescribeTensors describe = nullptr;  ///< for its plans; null if it needs no maps
  std::string_view variant = {};       ///< of the usual kernel, which has none: to be compared with it
};

/// All kernels: those of one generation before those of many, then tightest first among those of one pass and dtype.
std::span<const AttendKernel> attend_kernels();

/// Of an operation, when it may have any number.
inline constexpr std::int64_t many_queries = std::int64_t{1} << 62;

/// The first kernel that computes the shape on a device of that capability, or its variant of that name where it has
/// one for the shape; null if there is none. A kernel whose blocks take several heads is for operations of no
/// more `queries` than a block takes of each: with one head its block would be half empty.
const AttendKernel* find_attend_kernel(TilePass pass, const TileShape& shape, const Capability& capability,
                                       std::string_view variant = {}, std::int64_t queries = many_queries);

/// Variants of what find_attend_kernel finds.
std::vector<std::string> attend_variants(TilePass pass, const TileShape& shape, const Capability& capability);

/// Why find_attend_kernel finds nothing, naming what exists; empty if it finds something for every pass.
std::string why_no_attend_kernel(DType dtype, int head_dim, int value_dim, const Capability& capability);

}  // namespace distattn::kernels::cuda

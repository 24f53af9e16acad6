#pragma once
/// The attention kernels that exist, as a table: what is looked up is what runs, and a miss can say what there is.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/attend_choices.hpp"
#include "kernels/cuda/attend_params.hpp"
#include "kernels/cuda/launch.hpp"

namespace distattn::kernels::cuda {

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
  std::string name = {};               ///< pass and tile, as "forward 128x128": none else of its family has it
  bool on_request = false;  ///< taken where a choice or the caller names it, not for being the first that fits
};

/// All kernels: those of one generation before those of many, then tightest first among those of one pass and dtype.
std::span<const AttendKernel> attend_kernels();

/// What one launch computes.
struct AttendRequest {
  TilePass pass{};
  TileShape shape;
  std::int64_t queries = std::int64_t{1} << 62;  ///< that its operations have at most
  Coverage coverage = Coverage::partial;         ///< full: each of them sees all of its keys
  std::string_view name = {};                    ///< of the kernel to take where one of the family has it
};

/// The kernel for a request; null if there is none. Its family is that of the first that fits: of one pass, element
/// type, generation and dimensions. Of the family that one is taken which is named, or that `choices` names, or the
/// first. A kernel whose blocks take several heads is the first for operations of no more queries than a block takes of
/// each: with one head its block would be half empty. For those there is no other choice than by name.
const AttendKernel* find_attend_kernel(const AttendRequest& request, const Capability& capability,
                                       std::span<const AttendChoice> choices = attend_choices());

/// All that may be named for a request.
std::vector<const AttendKernel*> attend_family(const AttendRequest& request, const Capability& capability);

/// Why find_attend_kernel finds nothing, naming what exists; empty if it finds something for every pass.
std::string why_no_attend_kernel(DType dtype, int head_dim, int value_dim, const Capability& capability);

}  // namespace distattn::kernels::cuda

#pragma once
/// The attention kernels as a table: the kernel that is found is the one that runs, and an error can list the others.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/attend_choices.hpp"
#include "kernels/cuda/attend_params.hpp"
#include "kernels/cuda/launch.hpp"

namespace distattn::kernels::cuda {

/// Device properties that kernel selection depends on.
struct Capability {
  int architecture = 0;                                   ///< compute capability, as 90
  std::size_t block_shared_bytes = std::size_t{1} << 62;  ///< most that a block may use
};

struct AttendKernel {
  TilePass pass{};
  Features features;                ///< what it computes; one element type is among them
  int head_dim = 0, value_dim = 0;  ///< largest dimensions that it computes
  int architecture = 0;             ///< lowest compute capability, as 80
  int last_architecture = 1000;     ///< highest: some kernels run on one generation only
  std::size_t shared_bytes = 0;     ///< shared memory of a block
  TileSize tile;                    ///< tile size that its lists are made for
  Owner owner{};
  /// Without a grid the kernel is only loaded.
  int (*launch)(const AttendParams& params, unsigned grid, Stream stream) = nullptr;
  DescribeTensors describe = nullptr;  ///< makes its tensor maps; null if it needs none
  std::string name = {};               ///< pass and tile, as "forward 128x128"; unique in its family
  bool on_request = false;             ///< taken only if a choice or the caller names it
};

/// All kernels: those for one generation before those for several, then, for a pass and features, the tightest first.
std::span<const AttendKernel> attend_kernels();

/// What one launch computes.
struct AttendRequest {
  TilePass pass{};
  TileShape shape;
  std::int64_t queries = std::int64_t{1} << 62;  ///< most queries of one of its operations
  Coverage coverage = Coverage::partial;         ///< full: every query sees all keys
  std::string_view name = {};                    ///< kernel to take if the family has it
};

/// The kernel for a request; null if there is none. Its family is that of the first kernel that fits: one pass,
/// features, generation and dimensions. Within that family, picks the kernel named by the request, otherwise the one
/// in `choices`, otherwise the first. A kernel whose blocks take several heads comes first for operations with no more
/// queries than a block takes of each head: blocks of one head would be half empty. Only a request overrides that.
const AttendKernel* find_attend_kernel(const AttendRequest& request, const Capability& capability,
                                       std::span<const AttendChoice> choices = attend_choices());

/// The kernels that a request may name.
std::vector<const AttendKernel*> attend_family(const AttendRequest& request, const Capability& capability);

/// What kernels compute in a pass on such a device, at some size or other.
Features attend_features(Pass pass, const Capability& capability);

/// Why find_attend_kernel finds nothing, naming what exists; empty if it finds something for every pass.
std::string why_no_attend_kernel(const TileShape& shape, const Capability& capability);

}  // namespace distattn::kernels::cuda

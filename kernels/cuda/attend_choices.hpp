#pragma once
/// Which of a family's attention kernels is the fastest, as a GPU said. packaging/record-kernels.py writes the table.

#include <cstdint>
#include <span>
#include <string_view>

#include "distattn/band.hpp"

namespace distattn::kernels::cuda {

/// The passes over tiles. Backward is two kernels, each of which writes what its blocks own, in one order: results do
/// not depend on chance. Or it is one, `gradients`, that adds to dq whatever its carry, in any order.
enum class TilePass : std::uint8_t { forward, query_gradient, key_gradients, gradients };

constexpr const char* name_of(TilePass pass) {
  constexpr const char* names[] = {"forward", "query_gradient", "key_gradients", "gradients"};
  return names[static_cast<int>(pass)];
}

/// The kernel of that name, for 16-bit elements that have it.
struct AttendChoice {
  TilePass pass{};
  int architecture = 0;  ///< as AttendKernel's, as are the dimensions
  int head_dim = 0, value_dim = 0;
  Coverage coverage{};  ///< full or partial
  std::string_view name;
};

/// Shapes that it does not name take the first kernel that fits.
std::span<const AttendChoice> attend_choices();

}  // namespace distattn::kernels::cuda

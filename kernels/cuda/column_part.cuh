#pragma once
/// Results that are too wide for registers, as those of latents of 576 numbers are: a kernel is launched once for each
/// part of their columns.

#include <cstdint>

#include "kernels/cuda/attend_params.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/primitives.cuh"

namespace distattn::kernels::cuda {

/// Columns [first, first + count) of results.
struct ColumnPart {
  std::int32_t first, count;
};

/// Whether launches of a shape compute `part_columns` columns each.
template <class Shape>
inline constexpr bool in_parts = requires {
  Shape::part_columns;
};

/// The columns of `dim` that this launch computes: all, unless the shape has parts.
template <class Shape>
__device__ __forceinline__ ColumnPart column_part(const AttendParams& p, std::int32_t dim) {
  if constexpr (!in_parts<Shape>) {
    return {0, dim};
  } else {
    const std::int32_t first = p.part * Shape::part_columns;
    return {first, dim - first < Shape::part_columns ? dim - first : Shape::part_columns};
  }
}

/// Columns whose sums a lane of this launch holds, of results as wide as `dim`.
template <class Shape, int dim>
DISTATTN_HOST_DEVICE constexpr int held_columns() {
  if constexpr (in_parts<Shape>) {
    return Shape::part_columns;
  } else {
    return dim;
  }
}

/// Where those columns begin in a tile of 16-bit elements.
template <class Shape>
__device__ __forceinline__ std::uint32_t part_of_tile(const AttendParams& p, std::uint32_t tile) {
  if constexpr (in_parts<Shape>) {
    static_assert(Shape::part_columns % 64 == 0);  // whole groups of chunks
    return tile + static_cast<std::uint32_t>(p.part * Shape::part_columns * 2);
  } else {
    return tile;
  }
}

/// One launch after the other for each part of `dim` columns, one if there are none; the runtime's status.
template <class Shape>
int launch_parts(int (*launch)(const AttendParams&, unsigned, Stream), AttendParams params, std::int32_t dim,
                 unsigned grid, Stream stream) {
  int status = 0;
  do {
    status = launch(params, grid, stream);
    ++params.part;
  } while (status == 0 && params.part * Shape::part_columns < dim);
  return status;
}

}  // namespace distattn::kernels::cuda

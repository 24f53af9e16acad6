#pragma once
/// A tensor as Hopper's copy engine knows it.

#include <cstddef>
#include <cstdint>

namespace distattn::kernels::cuda {

/// A CUtensorMap on a device, the emulator's own description elsewhere. Kernels only pass its address on.
struct alignas(128) TensorMap {
  std::byte bytes[128] = {};
};

/// Elements packed as [plane][row][column], moved in boxes of `box_rows` rows of one plane.
struct TensorShape {
  int columns = 0;  ///< of 16 bytes together, or a multiple
  std::int64_t rows = 0, planes = 0;
  int box_rows = 0;  ///< at most 256
};

/// Bytes of a box's row. In shared memory rows follow each other, eight of them with their 16-byte chunks permuted:
/// chunk c of row r lies where chunk c ^ r%8 would. Tiles start on 1024 bytes.
inline constexpr int box_row_bytes = 128;

}  // namespace distattn::kernels::cuda

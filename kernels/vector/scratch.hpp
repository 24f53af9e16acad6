#pragma once
/// Laying arrays out in one piece of memory.

#include <cstddef>
#include <cstdint>

#include "distattn/index.hpp"
#include "kernels/vector/tile_shape.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Cuts aligned arrays off a piece of memory, or only counts when there is none.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  float* floats(int count) {
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += index(rounded_up(count, 64 / static_cast<int>(sizeof(float)))) * sizeof(float);
    return reinterpret_cast<float*>(at);
  }
  std::int32_t* integers(int count) { return reinterpret_cast<std::int32_t*>(floats(count)); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

}  // namespace distattn::kernels::vector::DISTATTN_ISA

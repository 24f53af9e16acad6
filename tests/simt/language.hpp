#pragma once
/// The CUDA spellings that plain C++ lacks, as far as the kernels use them.

#include "simt/machine.hpp"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx (::simt::machine().thread().index)
#define blockIdx (::simt::machine().block_index())
#define blockDim (::simt::machine().launch().block)
#define gridDim (::simt::machine().launch().grid)

inline void __syncthreads() { simt::machine().barrier(0, simt::machine().launch().block.count(), true); }

inline void __syncwarp(std::uint32_t mask = simt::all_lanes) {
  simt::machine().collective("__syncwarp", mask, nullptr, [mask](void**) { simt::machine().order_lanes(mask); });
}

namespace simt {

/// Every lane of `mask` gets the value of the lane that it asks for; a lane outside the mask gives a NaN pattern.
template <class T>
T shuffle(const char* name, std::uint32_t mask, T value, unsigned from) {
  struct Exchange {
    T given, taken;
    unsigned from;
  } mine{value, value, from};
  machine().collective(name, mask, &mine, [mask](void** arguments) {
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      if ((mask >> lane & 1u) == 0) continue;
      auto& its = *static_cast<Exchange*>(arguments[lane]);
      if (its.from < warp_size && (mask >> its.from & 1u) != 0) {
        its.taken = static_cast<Exchange*>(arguments[its.from])->given;
      } else {
        std::memset(&its.taken, 0xff, sizeof(T));
      }
    }
  });
  return mine.taken;
}

}  // namespace simt

template <class T>
T __shfl_xor_sync(std::uint32_t mask, T value, int lane_mask) {
  return simt::shuffle("__shfl_xor_sync", mask, value,
                       simt::machine().thread().lane ^ static_cast<unsigned>(lane_mask));
}
template <class T>
T __shfl_sync(std::uint32_t mask, T value, int lane) {
  return simt::shuffle("__shfl_sync", mask, value, static_cast<unsigned>(lane) % simt::warp_size);
}

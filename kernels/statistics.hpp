#pragma once
/// The low part of a statistic (arguments.hpp) as it is kept and sent: an fp16, within 3e-8 of what an fp32 lse up to
/// 1024 cannot hold and within 2^-36 of a larger one. It never overflows: the low part of a lse that kernels made is at
/// most the logarithm of the number of keys.

#include <cstdint>

#include "distattn/float16.hpp"
#include "distattn/partial.hpp"

namespace distattn::kernels {

constexpr float stored_low(const std::uint16_t* lows, std::int64_t row) {
  return lows == nullptr ? 0.f : fp16_to_float(lows[row]);
}
constexpr void store_low(std::uint16_t* lows, std::int64_t row, float low) {
  constexpr float most = 65504.f;  // of fp16
  if (lows != nullptr) lows[row] = float_to_fp16(low > most ? most : low < -most ? -most : low);
}

}  // namespace distattn::kernels

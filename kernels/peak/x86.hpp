#pragma once
/// Multiply-add loops of x86-64, each compiled for what it needs and called only where the processor has it.

#include <vector>

#include "kernels/peak/peak.hpp"

namespace distattn::kernels {

/// Of this processor, for elements of `dtype`; empty on other architectures.
std::vector<MultiplyAdd> x86_multiply_adds(DType dtype);

/// The tile multiplier for bf16, where the processor has one and the operating system lets this process use it.
std::vector<MultiplyAdd> tile_multiply_adds();

}  // namespace distattn::kernels

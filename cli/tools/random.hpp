#pragma once
/// Random tensors whose values depend on (seed, tensor, position) alone, so that they are the same on any number of
/// ranks.

#include <cstddef>
#include <cstdint>

#include "distattn/types.hpp"

namespace distattn {

/// The inputs of an attention; each is an independent stream.
enum class RandomTensor : std::uint8_t { q, k, v, d_o, sink_logits };

/// Element `index` (flat, of the dense [batch, sequence, heads, head_dim] tensor): standard normal, |x| < 8.3.
/// A counter-based generator: no state, any order. The quantile function is Wichura's PPND7 (AS 241), 1e-7 relative.
double random_normal(std::uint64_t seed, RandomTensor tensor, std::int64_t index);

/// Elements first … first+count-1, rounded to `dtype`.
void fill_normal(std::uint64_t seed, RandomTensor tensor, std::int64_t first, std::int64_t count, DType dtype,
                 std::byte* into);

}  // namespace distattn

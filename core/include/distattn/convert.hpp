#pragma once
/// Converts elements, and copies a rank's tokens out of a whole tensor and back.

#include <cstddef>
#include <cstdint>
#include <span>

#include "distattn/layout.hpp"
#include "distattn/tensor.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Converts `count` elements, rounded to nearest even if `into_dtype` is narrower. The arrays must not overlap.
void convert(const std::byte* from, DType from_dtype, std::byte* into, DType into_dtype, std::int64_t count);

/// Copies the tokens that `rank` owns, in the order of its local tensors, out of a whole tensor whose first token has
/// position `first`. Converts if the element types differ. Reads no other tokens of `whole`. Throws Error(usage) unless
/// both tensors lie in host memory, have the same batch, heads and head_dim, and hold those tokens.
void extract_shard(const ConstTensorView& whole, std::int64_t first, std::span<const Segment> segments, Rank rank,
                   const TensorView& local);

/// The inverse: copies a rank's tokens to their places in the whole tensor. Writes no other tokens of `whole`. Throws
/// as extract_shard() does.
void insert_shard(const ConstTensorView& local, std::span<const Segment> segments, Rank rank, std::int64_t first,
                  const TensorView& whole);

}  // namespace distattn
#pragma GCC visibility pop

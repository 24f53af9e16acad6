#pragma once
/// What the next block of keys will ask memory for.

#include "kernels/vector/packing.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Keys and values of the next block, `count` from `first` on, as far as they lie one behind the other.
struct Upcoming {
  Prefetch keys, values;

  Upcoming(const AttendBlock& block, const AttendPass& pass, int first, int count)
      : keys(rows(pass.k, block.dtype, first, count, block.head_dim)),
        values(rows(pass.v, block.dtype, first, count, block.value_dim)) {}

 private:
  static Prefetch rows(const KeyRows& from, DType dtype, int first, int count, int dim) {
    if (count <= 0) return {from, dtype, 0, dim};  // behind the last key there may be no page
    return {keys_from(from, dtype, first), dtype, end_of_run(from, first, first + count) - first, dim};
  }
};

}  // namespace distattn::kernels::vector::DISTATTN_ISA

#pragma once
/// Attention kernels on the emulator: which one computes a case, and its launch.

#include <algorithm>

#include "catch.hpp"
#include "kernels/cuda/attend_kernels.hpp"
#include "simt/attention_case.hpp"
#include "simt/place.hpp"

namespace simt {

using namespace kernels::cuda;

inline void launch(const AttendKernel& kernel, const AttendPlan& plan, std::uint64_t seed, unsigned most_blocks = ~0u) {
  if (plan.grid() == 0) return;
  const Array<std::byte> bytes(plan.bytes());
  const Array<DropoutDraw> draw(1, DropoutDraw(dropout_seed, dropout_offset));
  REQUIRE(run_kernels(seed, [&](Stream stream) {
            return kernel.launch(plan.params(bytes.data(), nullptr, draw.data()), std::min(plan.grid(), most_blocks),
                                 stream);
          }) == 0);
  CHECK(bank_conflicts() == 0);
}

template <class T>
kernels::TileShape shape_of(const AttentionCase& c) {
  return shape_of(c, Attention<T>::dtype());
}

template <class T>
const AttendKernel& kernel_for(TilePass pass, const AttentionCase& c, int architecture = 80,
                               std::int64_t queries = AttendRequest{}.queries) {
  const AttendKernel* kernel = find_attend_kernel({pass, shape_of<T>(c), queries}, {architecture});
  REQUIRE(kernel != nullptr);
  return *kernel;
}

/// All passes on sm_80.
template <class T>
void check(const AttentionCase& c, unsigned seed) {
  INFO(c.name << ", " << name_of(Attention<T>::dtype()) << ", head dimension " << c.head_dim << "/" << c.value_dim
              << ", seed " << seed);
  Attention<T> attention(c, seed);
  const AttendKernel& forward = kernel_for<T>(TilePass::forward, c);
  launch(forward, AttendPlan(attention.forward(), forward.tile, forward.describe), seed);
  CHECK(attention.forward_error() < attention.tolerance());
  for (const TilePass pass : {TilePass::query_gradient, TilePass::key_gradients}) {
    const AttendKernel& backward = kernel_for<T>(pass, c);
    launch(backward, AttendPlan(attention.backward(), backward.owner, backward.tile), seed);
  }
  CHECK(attention.query_gradient_error() < attention.tolerance());
  CHECK(attention.key_gradients_error() < attention.tolerance());
}

}  // namespace simt

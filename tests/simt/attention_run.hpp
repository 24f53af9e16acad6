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

}  // namespace simt

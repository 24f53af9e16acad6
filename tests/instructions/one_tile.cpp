/// Computes one small tile with the vector kernels, forward and backward, for counts.py: one_tile TILE.

#include <cmath>
#include <string_view>
#include <vector>

#include "conformance/kernels/tile_case.hpp"
#include "kernels/vector/cpu.hpp"

using namespace distattn;

namespace {

constexpr Band causal{.lo = 0};

test::TileCase causal_tile(const char* name, DType dtype, int heads, int kv_heads, int head_dim, Run queries,
                           Run keys) {
  const Scores scores{1 / std::sqrt(head_dim)};
  const kernels::TileShape shape{dtype, 1, {heads, kv_heads, 0, 0, heads / kv_heads}, head_dim, head_dim, scores};
  return {name, shape, queries, {{keys, {causal}}}};
}

/// Small enough to be counted in seconds, large enough that inner loops are most of what is counted.
std::vector<test::TileCase> tiles() {
  const Run many{0, 256, 1};
  return {causal_tile("fp32-d64", DType::fp32, 1, 1, 64, many, many),
          causal_tile("bf16-d128", DType::bf16, 1, 1, 128, many, many),
          causal_tile("one-query", DType::bf16, 8, 2, 128, {1023, 1, 1}, {0, 1024, 1})};
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  for (const test::TileCase& tile : tiles()) {
    if (tile.name != words[1]) continue;
    kernels::Team team(1);
    test::run_case(tile, test::inputs_of(tile), kernels::cpu_kernels(), team, nullptr);
    return 0;
  }
  return 2;
}

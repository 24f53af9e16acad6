// Compiled once for every instruction set, each time into a namespace of its own.

#include "kernels/vector/vector_kernels.hpp"

#include "kernels/vector/attend_backward_block.hpp"
#include "kernels/vector/attend_block.hpp"
#include "kernels/vector/pair_speed.hpp"
#if !defined(__AVX512BF16__)
#include "kernels/vector/attend_few.hpp"
#endif

namespace distattn::kernels::vector::DISTATTN_ISA {

const VectorKernels vector_kernels {
  .attend_panel = panel_width, .query_block = lanes, .attend_rows = attend_rows,
  .attend_scratch = [](int head_dim, int value_dim) { return AttendScratch(nullptr, head_dim, value_dim).bytes; },
  .attend_begin = attend_begin, .attend_pass = attend_pass, .attend_end = attend_end, .few_queries = few_queries,
#if !defined(__AVX512BF16__)  // sets for pairs leave few queries to the set that they belong to
  .few_rows = most_few_rows, .few_keys = key_block,
  .few_scratch = [](int rows, int head_dim,
                    int value_dim) { return FewScratch(nullptr, rows, head_dim, value_dim).bytes; },
  .few_sums = [](int rows, int value_dim) { return FewSums(nullptr, rows, value_dim).bytes; }, .few_begin = few_begin,
  .few_pass = few_pass, .few_end = few_end,
#else
  .few_rows = 0, .few_keys = 0, .few_scratch = nullptr, .few_sums = nullptr, .few_begin = nullptr, .few_pass = nullptr,
  .few_end = nullptr,
#endif
  .backward_rows = backward_rows, .backward_keys = backward_keys, .backward_chunk = backward_chunk,
  .backward_scratch = [](int head_dim, int value_dim) { return BackwardScratch(nullptr, head_dim, value_dim).bytes; },
  .backward_chunk_begin = backward_chunk_begin, .backward_sum_begin = backward_sum_begin,
  .backward_block_begin = backward_block_begin, .backward_pass = backward_pass,
  .backward_block_end = backward_block_end, .backward_sum_end = backward_sum_end, .find_shared = find_shared,
  .pair_speed = pair_speed,
};

}  // namespace distattn::kernels::vector::DISTATTN_ISA

#pragma once
/// Who adds to which gradient when: a backward pass as tasks whose sums do not depend on the number of threads.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/arguments.hpp"
#include "kernels/kokkos/blocks.hpp"
#include "kernels/kokkos/vector_kernels.hpp"

namespace distattn::kernels::kokkos {

/// Some queries of one head against some keys of one side. Tasks add to the same dQ when they share queries, to the
/// same dK and dV when they share keys. Each sum counts the tasks that have added to it; a task runs when both its sums
/// have reached its turns. Turns follow the order of the list, and so does every sum; no memory is spent on partial
/// sums.
struct BackwardTask {
  std::int64_t pairs = 0;  ///< visible ones
  std::int32_t round = 0;  ///< tasks of one round seldom share a sum
  std::int32_t operation = 0, side = 0;
  std::int32_t head = 0;   ///< batch · q_count + query head
  std::int32_t order = 0;  ///< of the head: neighbours have different key heads
  std::int32_t query_chunk = 0, key_chunk = 0;
  std::int32_t query_block = 0;  ///< of BackwardPlan::queries: the query chunk
  std::int32_t query_sum = 0, query_turn = 0;
  std::int32_t key_sum = 0, key_turn = 0;
  bool starts_queries = false, starts_keys = false;  ///< the sum holds nothing before it
};

/// Rows of one head that no task adds to: zeros.
struct ClearedRows {
  HeadRows<float> rows;
  std::int64_t count;
  int dim;
};

/// Kept from call to call, so that a call like the last one allocates nothing.
struct BackwardPlan {
  QueryBlocks queries;  ///< a block here is a chunk: what one task takes
  std::vector<BackwardTask> tasks;
  std::vector<ClearedRows> cleared;
  std::vector<std::int32_t> sums;  ///< how many tasks have added to each; all 0

  /// Chunks are whole multiples of `rows` queries and `keys` keys.
  void make(std::span<const AttendBackwardArgs> operations, std::int64_t rows, std::int64_t keys);

  static std::int64_t query_chunk_rows(const AttendBackwardArgs& args, std::int64_t rows);
  static std::int64_t key_chunk_keys(const KeySide& side, std::int64_t keys);

 private:
  void add_tasks(const AttendBackwardArgs& args, std::size_t block, std::int64_t rows, std::int64_t keys,
                 std::int32_t first_query_sum);
  void number_key_sums(std::span<const AttendBackwardArgs> operations, std::int64_t keys, std::int32_t first);
  void take_turns(std::span<const AttendBackwardArgs> operations);
  void clear_untouched(std::span<const AttendBackwardArgs> operations, std::int64_t rows, std::int64_t keys);

  /// Sums of a side's gradients, in the order of batch, head and chunk.
  struct KeySums {
    const void* dk;
    std::int32_t first;
    bool carry;  ///< of all sides that share them
  };
  const KeySums& sums_of(const KeySide& side) const;

  std::vector<KeySums> key_sums_;
};

}  // namespace distattn::kernels::kokkos

#pragma once
/// Who adds to which gradient when: a backward pass as columns of keys, whose sums do not depend on the number of
/// threads.

#include <cstdint>
#include <span>
#include <vector>

#include "distattn/index.hpp"
#include "kernels/arguments.hpp"
#include "kernels/vector/blocks.hpp"
#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector {

/// A block of queries that see some keys of a column. The same for every head.
struct Meeting {
  std::int32_t column;
  std::int32_t operation, side;
  std::int32_t block;  ///< of BackwardPlan::queries
  std::int32_t turn;   ///< how many columns add to these queries' dQ before this one
  std::int64_t pairs;  ///< visible ones
};

/// Some keys of one segment and all queries that see any of them. One thread takes a column of one head: its dK and dV
/// are nobody else's, and its keys are packed once.
struct KeyColumn {
  std::int32_t operation, side;  ///< one that has these keys
  std::int64_t first, count;     ///< keys
  std::int64_t pairs;
  std::size_t meetings, meetings_end;
  bool carry;  ///< of dK and dV
};

/// A column of one head.
struct ColumnTask {
  std::int32_t column;
  std::int32_t kv_head;  ///< batch · kv_count + key head
};

/// Rows of one head that no column adds to: zeros.
struct ClearedRows {
  HeadRows<float> rows;
  std::int64_t count;
  int dim;
};

/// Columns add to the same dQ when they share queries: one after the other, in the order of the list. A task awaits
/// tasks before it only, and only to add what it has computed. No memory is spent on partial sums.
///
/// Kept from call to call, so that a call like the last one allocates nothing.
struct BackwardPlan {
  QueryBlocks queries;
  std::vector<KeyColumn> columns;
  std::vector<Meeting> meetings;  ///< a column's one after the other, the last queries first
  std::vector<ColumnTask> tasks;
  std::vector<ClearedRows> cleared;
  std::vector<std::int32_t> turns;  ///< how many columns have added to the dQ of a block and head; all 0

  /// How large blocks and columns are.
  struct Cut {
    std::int64_t rows;             ///< a block has a multiple
    std::int64_t keys, most_keys;  ///< a column has a multiple of `keys`
  };
  void make(std::span<const AttendBackwardArgs> operations, const Cut& cut);

  std::span<const Meeting> meetings_of(const KeyColumn& column) const {
    return std::span(meetings).subspan(column.meetings, column.meetings_end - column.meetings);
  }
  /// The count among `turns` for a block and a query head, batch · q_count + head.
  std::int32_t& turn_of(const Meeting& meeting, std::int32_t head) {
    return turns[index(first_turn_[index(meeting.block)] + head)];
  }

 private:
  void find_segments(std::span<const AttendBackwardArgs> operations);
  void add_columns(std::span<const AttendBackwardArgs> operations, const Cut& cut);
  void add_meetings(const AttendBackwardArgs& args, std::int32_t block);
  void gather_meetings();
  void take_turns(std::span<const AttendBackwardArgs> operations);
  void number_turns(std::span<const AttendBackwardArgs> operations);
  void clear_unmet(std::span<const AttendBackwardArgs> operations);

  /// Keys whose gradients are summed in one place, for one operation or several.
  struct Segment {
    const void* dk;
    std::int32_t operation, side;  ///< the first that has them
    bool carry;                    ///< of all that have them
    std::int32_t first_column;
  };
  std::vector<Segment> segments_;
  std::int64_t column_keys_ = 0;
  std::vector<std::int32_t> met_, first_turn_;  ///< by block: columns that meet it; its place among `turns`
};

}  // namespace distattn::kernels::vector

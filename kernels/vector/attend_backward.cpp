#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "distattn/index.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/parallel.hpp"
#include "kernels/poll.hpp"
#include "kernels/vector/backward_plan.hpp"
#include "kernels/vector/cpu.hpp"
#include "kernels/vector/head_rows.hpp"
#include "kernels/vector/launch.hpp"
#include "kernels/vector/ranges.hpp"
#include "kernels/vector/select.hpp"

namespace distattn::kernels::vector {

namespace {

void clear(const ClearedRows& cleared) {
  for (std::int64_t row = 0; row < cleared.count; ++row) {
    std::fill_n(cleared.rows.data + row * cleared.rows.stride, cleared.dim, 0.f);
  }
}

/// Returns when the count has reached the turn, or work is to stop.
void await_turn(std::int32_t& count, std::int32_t turn, const StopFlag& stop) {
  const std::atomic_ref<std::int32_t> reached(count);
  const auto came = [&] {
    return reached.load(std::memory_order_acquire) == turn || stop.load(std::memory_order_relaxed);
  };
  while (!poll(came)) std::this_thread::yield();  // whoever is awaited may need this core
}

void end_turn(std::int32_t& count) { std::atomic_ref<std::int32_t>(count).fetch_add(1, std::memory_order_release); }

/// Blocks of queries over which dK and dV are summed before the sum is added to the results: what fp32 loses grows with
/// the number of terms.
constexpr int summed_blocks = 16;

/// One column of one head on one thread.
class ColumnRunner {
 public:
  ColumnRunner(BackwardPlan& plan, std::span<const AttendBackwardArgs> operations, const ColumnTask& task,
               std::byte* scratch, std::size_t scratch_bytes, const StopFlag& stop)
      : plan_(plan),
        operations_(operations),
        column_(plan.columns[index(task.column)]),
        kernels_(vector_kernels(operations[index(column_.operation)].shape.dtype)),
        scratch_(scratch),
        begin_(reinterpret_cast<std::int32_t*>(scratch + scratch_bytes), index(kernels_.backward_rows)),
        end_(begin_.data() + kernels_.backward_rows, begin_.size()),
        stop_(stop) {
    const AttendBackwardArgs& args = operations[index(column_.operation)];
    const TileShape& shape = args.shape;
    const KeySide& side = args.keys[index(column_.side)];
    batch_ = task.kv_head / shape.heads.kv_count;
    kv_head_ = task.kv_head % shape.heads.kv_count;
    chunk_ = {.dtype = shape.dtype,
              .head_dim = shape.head_dim,
              .value_dim = shape.value_dim,
              .scores = shape.scores,
              .k = rows_of_head(side.k, shape.dtype, batch_, kv_head_, column_.first),
              .v = rows_of_head(side.v, shape.dtype, batch_, kv_head_, column_.first),
              .keys = static_cast<int>(column_.count),
              .positions = part_of(side.keys, column_.first, column_.count),
              .segment = rows_of_head(side.k, shape.dtype, batch_, kv_head_, 0),
              .segment_keys = side.keys.count,
              .dk = rows_of_head(side.dk, batch_, kv_head_, column_.first),
              .dv = rows_of_head(side.dv, batch_, kv_head_, column_.first),
              .carry = column_.carry};
  }

  void run() {
    for (std::span rest = plan_.meetings_of(column_); !rest.empty();) {
      const auto end = std::ranges::upper_bound(rest, rest.front().operation, {}, &Meeting::operation);
      const std::span same(rest.begin(), end);
      const Heads& heads = operations_[index(rest.front().operation)].shape.heads;
      for (int head = 0; head < heads.q_count; ++head) {
        if (heads.kv_of(head) != kv_head_) continue;
        for (const Meeting& meeting : same) meet(meeting, head);
      }
      rest = {end, rest.end()};
    }
    if (summed_ > 0) {
      kernels_.backward_sum_end(chunk_, scratch_);
    } else if (!chunk_.carry) {
      clear({chunk_.dk, chunk_.keys, chunk_.head_dim});
      clear({chunk_.dv, chunk_.keys, chunk_.value_dim});
    }
  }

 private:
  /// Adds what the meeting's queries of one head have to do with the column's keys.
  void meet(const Meeting& meeting, int head) {
    const AttendBackwardArgs& args = operations_[index(meeting.operation)];
    const QueryBlock& queries = plan_.queries.blocks[index(meeting.block)];
    const std::int32_t q_head = batch_ * args.shape.heads.q_count + head;
    Turn turn{plan_.turn_of(meeting, q_head), meeting.turn};
    const std::int64_t step = kernels_.backward_rows;
    for (std::int64_t row = (queries.rows - 1) / step * step; row >= 0 && !stop_.load(std::memory_order_relaxed);
         row -= step) {
      add_block(args, meeting, head, queries.first + row, std::min(step, queries.rows - row), turn);
    }
    turn.await(stop_);
    end_turn(turn.count);
  }

  /// One meeting's turn to add to dQ, awaited once.
  struct Turn {
    std::int32_t& count;
    std::int32_t turn;
    bool came = false;

    void await(const StopFlag& stop) {
      if (!came) await_turn(count, turn, stop);
      came = true;
    }
  };

  void add_block(const AttendBackwardArgs& args, const Meeting& meeting, int head, std::int64_t row, std::int64_t rows,
                 Turn& turn) {
    const KeySide& side = args.keys[index(meeting.side)];
    const DType dtype = args.shape.dtype;
    const Run queries = part_of(args.queries, row, rows);
    const std::int64_t q_head = std::int64_t{batch_} * args.shape.heads.q_count + head;
    const std::int64_t kv_head = std::int64_t{batch_} * args.shape.heads.kv_count + args.shape.heads.kv_of(head);
    const std::int64_t at = q_head * args.queries.count + row;
    const std::int64_t next_row = std::max<std::int64_t>(0, row - kernels_.backward_rows);
    const BackwardBlock block{
        .q = rows_of_head(args.q, dtype, batch_, head, row),
        .d_o = rows_of_head(args.d_o, dtype, batch_, head, row),
        .lse = static_cast<const float*>(args.lse) + at,
        .lse_low = args.lse_low == nullptr ? nullptr : args.lse_low + at,
        .delta = static_cast<const float*>(args.delta) + at,
        .rows = static_cast<int>(rows),
        .positions = queries,
        .alibi_slope = args.shape.alibi_slopes == nullptr ? nullptr : args.shape.alibi_slopes + head,
        .dropout = head_dropout(args.shape, batch_, head),
        .few = args.queries.count <= kernels_.few_queries,
        .dq = rows_of_head(args.dq, batch_, head, row),
        .carry = args.carry || meeting.turn > 0,
        .shared = args.shared == nullptr ? nullptr : args.shared + kv_head * args.shape.head_dim,
        .sums = args.sums == nullptr ? nullptr : args.sums + at,
        .squares = args.squares == nullptr ? nullptr : args.squares + at,
        .next_q = rows_of_head(args.q, dtype, batch_, head, next_row),
        .next_d_o = rows_of_head(args.d_o, dtype, batch_, head, next_row),
        .next_rows = static_cast<int>(row - next_row)};
    bool begun = false;
    for (std::span touches = touches_of(meeting); !touches.empty();) {
      touches = touches.subspan(ranges_of_pass(touches, side.bands, queries, side.keys,
                                               {column_.first, column_.first + column_.count}, begin_, end_));
      for (std::size_t i = 0; i < index(rows); ++i) {
        if (block.lse[i] == -INFINITY) begin_[i] = end_[i] = 0;
      }
      if (std::ranges::all_of(end_, [](std::int32_t end) { return end == 0; })) continue;
      if (!begun) begin_block(block);
      begun = true;
      kernels_.backward_pass(chunk_, block, begin_.data(), end_.data(), scratch_, stop_);
    }
    if (!begun && block.carry) return;
    turn.await(stop_);
    if (begun) {
      kernels_.backward_block_end(chunk_, block, scratch_);
    } else {
      clear({block.dq, rows, args.shape.head_dim});
    }
  }

  /// The bands of the meeting's side that touch its queries.
  std::span<const Touch> touches_of(const Meeting& meeting) const {
    const std::span touches = plan_.queries.touches_of(plan_.queries.blocks[index(meeting.block)]);
    return {std::ranges::lower_bound(touches, meeting.side, {}, &Touch::side),
            std::ranges::upper_bound(touches, meeting.side, {}, &Touch::side)};
  }

  void begin_block(const BackwardBlock& block) {
    if (!packed_) kernels_.backward_chunk_begin(chunk_, scratch_);
    packed_ = true;
    if (summed_ == summed_blocks) {
      kernels_.backward_sum_end(chunk_, scratch_);
      chunk_.carry = true;
      summed_ = 0;
    }
    if (summed_++ == 0) kernels_.backward_sum_begin(chunk_, scratch_);
    kernels_.backward_block_begin(chunk_, block, scratch_);
  }

  BackwardPlan& plan_;
  std::span<const AttendBackwardArgs> operations_;
  const KeyColumn& column_;
  const VectorKernels& kernels_;
  BackwardChunk chunk_;
  int batch_, kv_head_;
  bool packed_ = false;
  int summed_ = 0;  ///< blocks in the sum that has begun
  std::byte* scratch_;
  std::span<std::int32_t> begin_, end_;
  const StopFlag& stop_;
};

}  // namespace

void attend_backward(std::span<const AttendBackwardArgs> operations, Team& team, const StopFlag& stop, Launch by) {
  thread_local BackwardPlan plan;  // kept by the thread that submits a rank's steps
  BackwardPlan& made = plan;
  BackwardPlan::Cut cut{.rows = 0, .keys = vector_kernels().backward_keys, .most_keys = unbounded};
  std::size_t bytes = 0;
  for (const AttendBackwardArgs& args : operations) {
    const TileShape& shape = args.shape;
    const VectorKernels& kernels = vector_kernels(shape.dtype);
    // Where types are mixed, the blocks of one are several of the other.
    cut.rows = std::max<std::int64_t>(cut.rows, kernels.backward_rows);
    cut.most_keys = std::min<std::int64_t>(cut.most_keys, kernels.backward_chunk(shape.head_dim, shape.value_dim));
    bytes = std::max(bytes, kernels.backward_scratch(shape.head_dim, shape.value_dim));
  }
  made.make(operations, cut);
  const std::size_t with_ranges = bytes + 2 * index(cut.rows) * sizeof(std::int32_t);

  // Before anybody waits for another: a thread without memory would never come to its turn.
  team.run([&](int thread) { team.scratch(thread, with_ranges); });
  for (const AttendBackwardArgs& args : operations) clear_sums(args);
  if (!made.cleared.empty()) {
    launch(by, team, static_cast<std::int64_t>(made.cleared.size()), stop,
           [&](int, std::int64_t i) { clear(made.cleared[index(i)]); });
  }
  launch(by, team, static_cast<std::int64_t>(made.tasks.size()), stop, [&](int thread, std::int64_t i) {
    ColumnRunner(made, operations, made.tasks[index(i)], team.scratch(thread, with_ranges), bytes, stop).run();
  });
}

void share(std::span<const ShareArgs> operations, Team& team, const StopFlag& stop) {
  const auto heads = [](const ShareArgs& args) { return Pieces{args.batch * args.kv_count, 1}; };
  for_each_piece(team, operations, stop, heads, [](const ShareArgs& args, std::int64_t head, std::int64_t) {
    const HeadRows<const void> k = rows_of_head(args.k, args.dtype, head / args.kv_count, head % args.kv_count, 0);
    vector_kernels(args.dtype).find_shared({args.dtype, args.head_dim, k, args.keys}, args.into + head * args.head_dim);
  });
}

}  // namespace distattn::kernels::vector

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "kernels/kokkos/backward_plan.hpp"
#include "kernels/kokkos/head_rows.hpp"
#include "kernels/kokkos/kokkos.hpp"
#include "kernels/kokkos/launch.hpp"
#include "kernels/kokkos/ranges.hpp"
#include "kernels/kokkos/select.hpp"
#include "kernels/poll.hpp"

namespace distattn::kernels::kokkos {

namespace {

void clear(const ClearedRows& cleared) {
  for (std::int64_t row = 0; row < cleared.count; ++row) {
    std::fill_n(cleared.rows.data + row * cleared.rows.stride, cleared.dim, 0.f);
  }
}

/// One task on one thread.
class TaskRunner {
 public:
  TaskRunner(const VectorKernels& kernels, const BackwardPlan& plan, const AttendBackwardArgs& args,
             const BackwardTask& task, std::byte* scratch, std::size_t scratch_bytes, const StopFlag& stop)
      : kernels_(kernels),
        args_(args),
        shape_(args.shape),
        task_(task),
        side_(args.keys[static_cast<std::size_t>(task.side)]),
        batch_(task.head / args.shape.heads.q_count),
        head_(task.head % args.shape.heads.q_count),
        kv_head_(args.shape.heads.kv_of(head_)),
        scratch_(scratch),
        begin_(reinterpret_cast<std::int32_t*>(scratch + scratch_bytes),
               static_cast<std::size_t>(kernels.backward_rows)),
        end_(begin_.data() + kernels.backward_rows, begin_.size()),
        stop_(stop) {
    const QueryBlock& chunk = plan.queries.blocks[static_cast<std::size_t>(task.query_block)];
    const std::span touches = plan.queries.touches_of(chunk);
    const auto first = std::ranges::lower_bound(touches, task.side, {}, &Touch::side);
    touches_ = {first, std::ranges::upper_bound(touches, task.side, {}, &Touch::side)};
    rows_ = {chunk.first, chunk.first + chunk.rows};
  }

  /// Adds the gradients of the keys [first, first + count).
  void run(std::int64_t first, std::int64_t count) {
    if (task_.starts_queries) {
      clear({rows_of_head(args_.dq, batch_, head_, rows_.begin), rows_.end - rows_.begin, shape_.head_dim});
    }
    for (std::int64_t key = first; key < first + count; key += backward_chunk) {
      add_chunk(key, std::min<std::int64_t>(backward_chunk, first + count - key));
    }
  }

 private:
  void add_chunk(std::int64_t key, std::int64_t count) {
    const BackwardChunk chunk{.dtype = shape_.dtype,
                              .head_dim = shape_.head_dim,
                              .value_dim = shape_.value_dim,
                              .scale = static_cast<float>(shape_.scale),
                              .k = rows_of_head(side_.k, shape_.dtype, batch_, kv_head_, key),
                              .v = rows_of_head(side_.v, shape_.dtype, batch_, kv_head_, key),
                              .keys = static_cast<int>(count),
                              .dk = rows_of_head(side_.dk, batch_, kv_head_, key),
                              .dv = rows_of_head(side_.dv, batch_, kv_head_, key),
                              .carry = !task_.starts_keys};
    const std::int64_t step = kernels_.backward_rows;
    bool packed = false;
    for (std::int64_t row = rows_.begin; row < rows_.end && !stop_.load(std::memory_order_relaxed); row += step) {
      add_block(chunk, key, row, std::min(step, rows_.end - row), packed);
    }
    if (packed) {
      kernels_.backward_chunk_end(chunk, scratch_);
    } else if (!chunk.carry) {
      clear({chunk.dk, count, chunk.head_dim});
      clear({chunk.dv, count, chunk.value_dim});
    }
  }

  void add_block(const BackwardChunk& chunk, std::int64_t key, std::int64_t row, std::int64_t rows, bool& packed) {
    const Run queries = part_of(args_.queries, row, rows);
    const std::int64_t at = (std::int64_t{batch_} * shape_.heads.q_count + head_) * args_.queries.count + row;
    const BackwardBlock block{
        .q = rows_of_head(args_.q, shape_.dtype, batch_, head_, row),
        .d_o = rows_of_head(args_.d_o, shape_.dtype, batch_, head_, row),
        .lse = static_cast<const float*>(args_.lse) + at,
        .delta = static_cast<const float*>(args_.delta) + at,
        .rows = static_cast<int>(rows),
        .dq = rows_of_head(args_.dq, batch_, head_, row),
        .next_q = rows_of_head(args_.q, shape_.dtype, batch_, head_, row + rows),
        .next_d_o = rows_of_head(args_.d_o, shape_.dtype, batch_, head_, row + rows),
        .next_rows = static_cast<int>(std::min<std::int64_t>(kernels_.backward_rows, rows_.end - row - rows))};
    bool begun = false;
    for (std::span touches = touches_; !touches.empty();) {
      touches = touches.subspan(
          ranges_of_pass(touches, side_.bands, queries, side_.keys, {key, key + chunk.keys}, begin_, end_));
      for (std::size_t i = 0; i < static_cast<std::size_t>(block.rows); ++i) {
        if (block.lse[i] == -INFINITY) begin_[i] = end_[i] = 0;
      }
      if (std::ranges::all_of(end_, [](std::int32_t end) { return end == 0; })) continue;
      if (!packed) kernels_.backward_chunk_begin(chunk, scratch_);
      if (!begun) kernels_.backward_block_begin(chunk, block, scratch_);
      packed = begun = true;
      kernels_.backward_pass(chunk, block, begin_.data(), end_.data(), scratch_, stop_);
    }
    if (begun) kernels_.backward_block_end(chunk, block, scratch_);
  }

  const VectorKernels& kernels_;
  const AttendBackwardArgs& args_;
  const TileShape& shape_;
  const BackwardTask& task_;
  const KeySide& side_;
  int batch_, head_, kv_head_;
  IndexRange rows_;
  std::span<const Touch> touches_;
  std::byte* scratch_;
  std::span<std::int32_t> begin_, end_;
  const StopFlag& stop_;
};

/// Returns when the sum has reached the turn, or work is to stop.
void await_turn(std::int32_t& sum, std::int32_t turn, const StopFlag& stop) {
  const std::atomic_ref<std::int32_t> reached(sum);
  const auto came = [&] {
    return reached.load(std::memory_order_acquire) == turn || stop.load(std::memory_order_relaxed);
  };
  while (!poll(came)) std::this_thread::yield();  // whoever is awaited may need this core
}

void end_turn(std::int32_t& sum) { std::atomic_ref<std::int32_t>(sum).fetch_add(1, std::memory_order_release); }

}  // namespace

void attend_backward(std::span<const AttendBackwardArgs> operations, Team& team, const StopFlag& stop) {
  thread_local BackwardPlan plan;  // kept by the thread that submits a rank's steps
  BackwardPlan& made = plan;
  const VectorKernels& kernels = vector_kernels();
  made.make(operations, kernels.backward_rows, backward_chunk);
  std::size_t bytes = 0;
  for (const auto& args : operations) {
    bytes = std::max(bytes, kernels.backward_scratch(args.shape.head_dim, args.shape.value_dim));
  }
  const std::size_t with_ranges = bytes + 2 * static_cast<std::size_t>(kernels.backward_rows) * sizeof(std::int32_t);

  launch(team, static_cast<std::int64_t>(made.cleared.size()), stop,
         [&](int, std::int64_t i) { clear(made.cleared[static_cast<std::size_t>(i)]); });
  launch(team, static_cast<std::int64_t>(made.tasks.size()), stop, [&](int thread, std::int64_t i) {
    const BackwardTask& task = made.tasks[static_cast<std::size_t>(i)];
    const AttendBackwardArgs& args = operations[static_cast<std::size_t>(task.operation)];
    const KeySide& side = args.keys[static_cast<std::size_t>(task.side)];
    const std::int64_t size = BackwardPlan::key_chunk_keys(side, backward_chunk), first = task.key_chunk * size;
    std::int32_t& query_sum = made.sums[static_cast<std::size_t>(task.query_sum)];
    std::int32_t& key_sum = made.sums[static_cast<std::size_t>(task.key_sum)];
    await_turn(query_sum, task.query_turn, stop);
    await_turn(key_sum, task.key_turn, stop);
    TaskRunner(kernels, made, args, task, team.scratch(thread, with_ranges), bytes, stop)
        .run(first, std::min(size, side.keys.count - first));
    end_turn(query_sum);
    end_turn(key_sum);
  });
}

}  // namespace distattn::kernels::kokkos

#include <algorithm>
#include <vector>

#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "kernels/vector/blocks.hpp"
#include "kernels/vector/cpu.hpp"
#include "kernels/vector/few_plan.hpp"
#include "kernels/vector/head_groups.hpp"
#include "kernels/vector/head_rows.hpp"
#include "kernels/vector/launch.hpp"
#include "kernels/vector/ranges.hpp"
#include "kernels/vector/select.hpp"

namespace distattn::kernels::vector {

namespace {

/// Some heads of one block of queries, all of which read one key head.
struct Item {
  std::int64_t pairs;
  std::int32_t block;
  std::int32_t head;  ///< the first: batch · q_count + query head
  std::int32_t heads;
};

struct Plan {
  QueryBlocks cut;
  std::vector<Item> items;
  std::size_t scratch_bytes;  ///< of a thread, without the ranges
  std::size_t most_rows;      ///< of a block
};

// Small enough that every thread gets several, large enough that packed keys serve many queries. A query's result does
// not depend on the block that it is in, nor on the heads beside its own.
constexpr std::int64_t items_a_thread = 4;

std::int64_t block_rows(const VectorKernels& kernels, const AttendArgs& args, int threads) {
  const std::int64_t heads = args.shape.batch * args.shape.heads.q_count, panel = kernels.attend_panel;
  const std::int64_t most = kernels.attend_rows(args.shape.head_dim, args.shape.value_dim);
  const std::int64_t blocks_wanted =
      std::max(ceil_div(items_a_thread * threads, heads), ceil_div(args.queries.count, most));
  const std::int64_t rows = std::max<std::int64_t>(1, ceil_div(args.queries.count, blocks_wanted));
  return std::min(most, ceil_div(rows, panel) * panel);
}

/// Most heads that read one key head and are done together, `rows` rows and `blocks` blocks each.
int heads_together(const VectorKernels& kernels, const TileShape& shape, std::int64_t rows, std::size_t blocks,
                   int threads) {
  const std::int64_t items = shape.batch * shape.heads.q_count * static_cast<std::int64_t>(blocks);
  const std::int64_t fitting = kernels.attend_rows(shape.head_dim, shape.value_dim) / rows;
  return static_cast<int>(std::max<std::int64_t>(1, std::min(fitting, items / (items_a_thread * threads))));
}

void make_plan(std::span<const AttendArgs> operations, int threads, Plan& plan) {
  plan.cut.clear();
  plan.items.clear();
  plan.scratch_bytes = plan.most_rows = 0;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const AttendArgs& args = operations[i];
    const VectorKernels& kernels = vector_kernels(args.shape.dtype);
    if (args.queries.count <= kernels.few_queries) continue;
    const TileShape& shape = args.shape;
    const std::size_t first = plan.cut.blocks.size();
    const std::int64_t rows = block_rows(kernels, args, threads);
    plan.cut.cut(static_cast<std::int32_t>(i), args.queries, args.keys, rows);
    const int most = heads_together(kernels, shape, rows, plan.cut.blocks.size() - first, threads);
    for (std::size_t block = first; block < plan.cut.blocks.size(); ++block) {
      for (int b = 0; b < shape.batch; ++b) {
        for_each_group(shape.heads, most, [&](int head, int heads) {
          plan.items.push_back({heads * plan.cut.blocks[block].pairs, static_cast<std::int32_t>(block),
                                b * shape.heads.q_count + head, heads});
        });
      }
    }
    plan.scratch_bytes = std::max(plan.scratch_bytes, kernels.attend_scratch(shape.head_dim, shape.value_dim));
    plan.most_rows = std::max(plan.most_rows, index(kernels.attend_rows(shape.head_dim, shape.value_dim)));
  }
  // Longest first, so that none is left alone at the end.
  std::sort(plan.items.begin(), plan.items.end(), [](const Item& a, const Item& b) {
    return a.pairs != b.pairs ? a.pairs > b.pairs : a.block != b.block ? a.block < b.block : a.head < b.head;
  });
}

void attend_item(const Plan& plan, const AttendArgs& args, const Item& item, std::byte* scratch, const StopFlag& stop) {
  const TileShape& shape = args.shape;
  const QueryBlock& block = plan.cut.blocks[index(item.block)];
  const std::int64_t b = item.head / shape.heads.q_count, h = item.head % shape.heads.q_count;
  const std::int64_t lse_row = item.head * args.queries.count + block.first;
  const AttendBlock rows{
      .dtype = shape.dtype,
      .head_dim = shape.head_dim,
      .value_dim = shape.value_dim,
      .scores = shape.scores,
      .alibi_slopes = shape.alibi_slopes == nullptr ? nullptr : shape.alibi_slopes + h,
      .queries = block.rows,
      .heads = item.heads,
      .positions = part_of(args.queries, block.first, block.rows),
      .q = rows_of_head(args.q, shape.dtype, b, h, block.first),
      .q_head = args.q.strides.head,
      .o = rows_of_head(args.o, b, h, block.first),
      .o_head = args.o.strides.head,
      .lse = static_cast<float*>(args.lse) + lse_row,
      .lse_low = args.lse_low == nullptr ? nullptr : args.lse_low + lse_row,
      .lse_head = args.queries.count,
      .carry = args.carry,
      .max_logit = args.max_logit == nullptr ? nullptr : static_cast<float*>(args.max_logit) + item.head,
      .dropout = head_dropout(shape, b, h)};
  const std::span begin(reinterpret_cast<std::int32_t*>(scratch + plan.scratch_bytes), plan.most_rows);
  const std::span end(begin.data() + plan.most_rows, plan.most_rows);
  const Run queries = part_of(args.queries, block.first, block.rows);
  const int kv = shape.heads.kv_of(static_cast<int>(h));

  const VectorKernels& kernels = vector_kernels(shape.dtype);
  kernels.attend_begin(rows, scratch);
  for (std::span touches = plan.cut.touches_of(block); !touches.empty();) {
    const KeySide& side = args.keys[index(touches.front().side)];
    touches =
        touches.subspan(ranges_of_pass(touches, side.bands, queries, side.keys, {0, side.keys.count}, begin, end));
    kernels.attend_pass(rows, pass_over(side, shape.dtype, b, kv, begin.data(), end.data()), scratch, stop);
  }
  kernels.attend_end(rows, scratch);
}

}  // namespace

void attend(std::span<const AttendArgs> operations, Team& team, const StopFlag& stop, Launch by) {
  thread_local Plan plan;  // kept by the thread that submits a rank's steps
  thread_local FewPlan few_plan;
  const Plan& made = plan;
  FewPlan& few = few_plan;
  make_plan(operations, team.size(), plan);
  few.make(operations, vector_kernels(), team.size());
  const std::size_t bytes =
      std::max(plan.scratch_bytes + 2 * plan.most_rows * sizeof(std::int32_t), few.scratch_bytes());
  const auto many = static_cast<std::int64_t>(plan.items.size());
  launch(by, team, many + few.items(), stop, [&](int thread, std::int64_t i) {
    std::byte* const scratch = team.scratch(thread, bytes);
    if (i >= many) return few.sum(i - many, scratch, stop);
    const Item& item = made.items[index(i)];
    const AttendArgs& args = operations[index(made.cut.blocks[index(item.block)].operation)];
    attend_item(made, args, item, scratch, stop);
  });
  if (few.ends() > 0) launch(by, team, few.ends(), stop, [&](int, std::int64_t i) { few.end(i); });
}

}  // namespace distattn::kernels::vector

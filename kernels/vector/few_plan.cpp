#include "kernels/vector/few_plan.hpp"

#include <algorithm>
#include <array>

#include "distattn/index.hpp"
#include "kernels/vector/head_groups.hpp"
#include "kernels/vector/head_rows.hpp"
#include "kernels/vector/ranges.hpp"

namespace distattn::kernels::vector {

namespace {

/// Keys that are worth a piece of their own: reading them takes many times as long as merging what they sum up to.
constexpr std::int64_t piece_keys = 1024;

/// Blocks of an item, and their rows, whose queries, scores and sums stay in the second-level cache.
constexpr std::size_t most_blocks = most_few_heads;
constexpr int most_rows = 128;

/// Items for each thread: enough that they end at about the same time.
constexpr std::int64_t items_of_thread = 4;

}  // namespace

void FewPlan::make(std::span<const AttendArgs> operations, const VectorKernels& kernels, int threads) {
  kernels_ = &kernels;
  queries_.clear();
  ranges_.clear();
  stretches_.clear();
  pieces_.clear();
  blocks_.clear();
  split_.clear();
  items_.clear();
  sums_bytes_ = scratch_bytes_ = 0;
  const auto has_few = [&](const AttendArgs& args) {
    return args.queries.count > 0 && args.queries.count <= kernels.few_queries;
  };
  sequences_ = 0;
  for (const AttendArgs& args : operations) sequences_ += has_few(args) ? args.shape.batch : 0;
  for (const AttendArgs& args : operations) {
    if (has_few(args)) add(args, threads);
  }
  sums_.resize(sums_bytes_ / sizeof(Line));
}

void FewPlan::add(const AttendArgs& args, int threads) {
  const TileShape& shape = args.shape;
  const std::size_t first_piece = pieces_.size();
  find_stretches(args);
  cut_stretches();
  const std::size_t pieces = pieces_.size() - first_piece;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const int queries = static_cast<int>(args.queries.count);
    const std::size_t first_block = blocks_.size();
    for_each_group(shape.heads, kernels_->few_rows / queries, [&](int head, int heads) {
      const std::size_t bytes = kernels_->few_sums(heads * queries, shape.value_dim);
      if (pieces > 1) split_.push_back(blocks_.size());
      blocks_.push_back({&args, b, head, heads, first_piece, pieces_.size(), sums_bytes_, bytes});
      sums_bytes_ += pieces * bytes;
    });
    add_items(first_block, first_piece, threads);
  }
}

/// Of one sequence.
void FewPlan::add_items(std::size_t first_block, std::size_t first_piece, int threads) {
  const std::size_t pieces = pieces_.size() - first_piece;
  const std::size_t all = (blocks_.size() - first_block) * pieces * index(sequences_);
  const auto wanted = index(items_of_thread * threads);
  const std::size_t together = std::clamp<std::size_t>(all / wanted, 1, most_blocks);
  for (std::size_t piece = first_piece; piece < pieces_.size(); ++piece) {
    for (std::size_t first = first_block, last = first; first < blocks_.size(); first = last) {
      std::size_t scratch = 0;
      for (std::int64_t rows = 0; last < blocks_.size() && last - first < together; ++last) {
        rows += blocks_[last].heads * blocks_[last].args->queries.count;
        if (last > first && rows > most_rows) break;
        scratch += block_scratch(blocks_[last]);
      }
      items_.push_back({first, last, piece});
      scratch_bytes_ = std::max(scratch_bytes_, scratch);
    }
  }
}

std::size_t FewPlan::block_scratch(const Block& block) const {
  const TileShape& shape = block.args->shape;
  return kernels_->few_scratch(block.heads * static_cast<int>(block.args->queries.count), shape.head_dim,
                               shape.value_dim);
}

void FewPlan::find_stretches(const AttendArgs& args) {
  seen_.clear();
  queries_.clear();
  const auto rows = index(args.queries.count);
  queries_.cut(0, args.queries, args.keys, args.queries.count);
  for (std::span touches = queries_.touches_of(queries_.blocks.front()); !touches.empty();) {
    const KeySide& side = args.keys[index(touches.front().side)];
    const std::size_t ranges = ranges_.size();
    ranges_.resize(ranges + 2 * rows);
    const std::span begin(ranges_.data() + ranges, rows), end(begin.data() + rows, rows);
    touches =
        touches.subspan(ranges_of_pass(touches, side.bands, args.queries, side.keys, {0, side.keys.count}, begin, end));
    Stretch stretch{&side, ranges, side.keys.count, 0};
    for (std::size_t i = 0; i < rows; ++i) {
      if (begin[i] < end[i]) stretch.first = std::min<std::int64_t>(stretch.first, begin[i]);
      stretch.last = std::max<std::int64_t>(stretch.last, end[i]);
    }
    if (stretch.first < stretch.last) seen_.push_back(stretch);
  }
}

/// Into pieces of about the same number of keys: at least one, which sums nothing where nothing is seen.
void FewPlan::cut_stretches() {
  std::int64_t keys = 0;
  for (const Stretch& stretch : seen_) keys += stretch.last - stretch.first;
  const std::int64_t count = std::clamp<std::int64_t>(keys / piece_keys, 1, most_pieces);
  const std::int64_t share = ceil_div(keys, count);
  std::int64_t room = share;
  pieces_.push_back({stretches_.size(), stretches_.size()});
  for (Stretch rest : seen_) {
    while (rest.first < rest.last) {
      if (room <= 0) {
        pieces_.push_back({stretches_.size(), stretches_.size()});
        room += share;
      }
      Stretch part = rest;
      part.last = std::min(rest.last, ceil_div(rest.first + room, kernels_->few_keys) * kernels_->few_keys);
      stretches_.push_back(part);
      pieces_.back().stretches_end = stretches_.size();
      room -= part.last - part.first;
      rest.first = part.last;
    }
  }
}

FewBlock FewPlan::rows_of(const Block& block) const {
  const AttendArgs& args = *block.args;
  const TileShape& shape = args.shape;
  const HeadRows q = rows_of_head(args.q, shape.dtype, block.batch, block.head, 0);
  const HeadRows o = rows_of_head(args.o, block.batch, block.head, 0);
  const std::int64_t lse_row = (block.batch * shape.heads.q_count + block.head) * args.queries.count;
  return {.dtype = shape.dtype,
          .head_dim = shape.head_dim,
          .value_dim = shape.value_dim,
          .scores = shape.scores,
          .alibi_slopes = shape.alibi_slopes == nullptr ? nullptr : shape.alibi_slopes + block.head,
          .queries = static_cast<int>(args.queries.count),
          .heads = block.heads,
          .positions = args.queries,
          .q = q,
          .q_head = args.q.strides.head,
          .o = o,
          .o_head = args.o.strides.head,
          .lse = static_cast<float*>(args.lse) + lse_row,
          .lse_low = args.lse_low == nullptr ? nullptr : args.lse_low + lse_row,
          .carry = args.carry,
          .max_logit = args.max_logit == nullptr
                           ? nullptr
                           : static_cast<float*>(args.max_logit) + block.batch * shape.heads.q_count + block.head,
          .dropout = head_dropout(shape, block.batch, block.head)};
}

std::byte* FewPlan::sums_of(const Block& block, std::size_t piece) {
  return reinterpret_cast<std::byte*>(sums_.data()) + block.sums + (piece - block.pieces) * block.piece_bytes;
}

void FewPlan::sum(std::int64_t number, std::byte* scratch, const StopFlag& stop) {
  const Item& item = items_[index(number)];
  const std::span blocks(blocks_.data() + item.block, item.blocks_end - item.block);
  std::array<FewHead, most_blocks> memory;
  const std::span heads(memory.data(), blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    heads[i] = {rows_of(blocks[i]), {}, scratch, sums_of(blocks[i], item.piece)};
    kernels_->few_begin(heads[i].block, heads[i].scratch, heads[i].sums);
    scratch += block_scratch(blocks[i]);
  }
  const Piece& piece = pieces_[item.piece];
  for (std::size_t i = piece.stretches; i < piece.stretches_end; ++i) {
    const Stretch& stretch = stretches_[i];
    for (std::size_t j = 0; j < blocks.size(); ++j) heads[j].pass = pass_of(blocks[j], stretch);
    kernels_->few_pass(heads, static_cast<int>(stretch.first), static_cast<int>(stretch.last), stop);
  }
  for (const Block& block : blocks) {
    if (block.pieces_end - block.pieces == 1) end(block);
  }
}

AttendPass FewPlan::pass_of(const Block& block, const Stretch& stretch) const {
  const TileShape& shape = block.args->shape;
  const int kv = shape.heads.kv_of(block.head);
  const std::int32_t* const begin = ranges_.data() + stretch.ranges;
  return pass_over(*stretch.side, shape.dtype, block.batch, kv, begin, begin + block.args->queries.count);
}

void FewPlan::end(std::int64_t number) { end(blocks_[split_[index(number)]]); }

void FewPlan::end(const Block& block) {
  kernels_->few_end(rows_of(block), sums_of(block, block.pieces), static_cast<int>(block.pieces_end - block.pieces));
}

}  // namespace distattn::kernels::vector

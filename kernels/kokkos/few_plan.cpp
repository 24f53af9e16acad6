#include "kernels/kokkos/few_plan.hpp"

#include <algorithm>

#include "kernels/kokkos/head_groups.hpp"
#include "kernels/kokkos/head_rows.hpp"
#include "kernels/kokkos/ranges.hpp"

namespace distattn::kernels::kokkos {

namespace {

/// Keys that are worth a piece of their own: reading them takes many times as long as merging what they sum up to.
constexpr std::int64_t piece_keys = 1024;

}  // namespace

void FewPlan::make(std::span<const AttendArgs> operations, const VectorKernels& kernels) {
  kernels_ = &kernels;
  queries_.clear();
  ranges_.clear();
  stretches_.clear();
  pieces_.clear();
  blocks_.clear();
  split_.clear();
  items_.clear();
  sums_bytes_ = scratch_bytes_ = 0;
  for (const AttendArgs& args : operations) {
    if (args.queries.count > 0 && args.queries.count <= kernels.few_queries) add(args);
  }
  sums_.resize(sums_bytes_ / sizeof(Line));
}

void FewPlan::add(const AttendArgs& args) {
  const TileShape& shape = args.shape;
  scratch_bytes_ = std::max(scratch_bytes_, kernels_->few_scratch(shape.head_dim, shape.value_dim));
  const std::size_t first_piece = pieces_.size(), first_block = blocks_.size();
  find_stretches(args);
  cut_stretches();
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const int queries = static_cast<int>(args.queries.count);
    for_each_group(shape.heads, kernels_->few_rows / queries, [&](int head, int heads) {
      const std::size_t bytes = kernels_->few_sums(heads * queries, shape.value_dim);
      if (pieces_.size() - first_piece > 1) split_.push_back(blocks_.size());
      blocks_.push_back({&args, b, head, heads, first_piece, pieces_.size(), sums_bytes_, bytes});
      sums_bytes_ += (pieces_.size() - first_piece) * bytes;
    });
  }
  // Blocks that read the same rows of keys follow each other.
  for (std::size_t piece = first_piece; piece < pieces_.size(); ++piece) {
    for (std::size_t block = first_block; block < blocks_.size(); ++block) items_.push_back({block, piece});
  }
}

void FewPlan::find_stretches(const AttendArgs& args) {
  seen_.clear();
  queries_.clear();
  const auto rows = static_cast<std::size_t>(args.queries.count);
  queries_.cut(0, args.queries, args.keys, args.queries.count);
  for (std::span touches = queries_.touches_of(queries_.blocks.front()); !touches.empty();) {
    const KeySide& side = args.keys[static_cast<std::size_t>(touches.front().side)];
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
  return {.dtype = shape.dtype,
          .head_dim = shape.head_dim,
          .value_dim = shape.value_dim,
          .scale = static_cast<float>(shape.scale),
          .queries = static_cast<int>(args.queries.count),
          .heads = block.heads,
          .q = q,
          .q_head = args.q.strides.head,
          .o = o,
          .o_head = args.o.strides.head,
          .lse = static_cast<float*>(args.lse) + (block.batch * shape.heads.q_count + block.head) * args.queries.count,
          .carry = args.carry};
}

std::byte* FewPlan::sums_of(const Block& block, std::size_t piece) {
  return reinterpret_cast<std::byte*>(sums_.data()) + block.sums + (piece - block.pieces) * block.piece_bytes;
}

void FewPlan::sum(std::int64_t item, std::byte* scratch, const StopFlag& stop) {
  const auto [number, piece] = items_[static_cast<std::size_t>(item)];
  const Block& block = blocks_[number];
  const TileShape& shape = block.args->shape;
  const FewBlock rows = rows_of(block);
  const int kv = shape.heads.kv_of(block.head);
  std::byte* const sums = sums_of(block, piece);
  kernels_->few_begin(rows, scratch, sums);
  for (std::size_t i = pieces_[piece].stretches; i < pieces_[piece].stretches_end; ++i) {
    const Stretch& stretch = stretches_[i];
    const std::int32_t* const begin = ranges_.data() + stretch.ranges;
    const AttendPass pass{.k = rows_of_head(stretch.side->k, shape.dtype, block.batch, kv, 0),
                          .v = rows_of_head(stretch.side->v, shape.dtype, block.batch, kv, 0),
                          .begin = begin,
                          .end = begin + rows.queries};
    kernels_->few_pass(rows, pass, static_cast<int>(stretch.first), static_cast<int>(stretch.last), scratch, sums,
                       stop);
  }
  if (block.pieces_end - block.pieces == 1) end(block);
}

void FewPlan::end(std::int64_t number) { end(blocks_[split_[static_cast<std::size_t>(number)]]); }

void FewPlan::end(const Block& block) {
  kernels_->few_end(rows_of(block), sums_of(block, block.pieces), static_cast<int>(block.pieces_end - block.pieces));
}

}  // namespace distattn::kernels::kokkos

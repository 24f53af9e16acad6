#include "backends/staging.hpp"

#include <algorithm>

#include "distattn/index.hpp"

namespace distattn::backends {
namespace {

/// The part as one side of a rearrangement, from head `first` on.
kernels::RearrangeArgs packed_side(const BufferTable::Part& part, std::int64_t batch, int first, bool into) {
  const PartShape& shape = part.shape;
  const std::int64_t head = shape.tokens * shape.dim;
  std::byte* data = part.data + index(first * head) * size_of(shape.dtype);
  const std::array<std::int64_t, 4> strides{shape.heads * head, head, shape.dim, 1};
  kernels::RearrangeArgs args;
  args.shape = {batch, shape.heads - first, shape.tokens, shape.dim};
  if (into) {
    args.into_dtype = shape.dtype;
    args.into = data;
    args.into_strides = strides;
  } else {
    args.from_dtype = shape.dtype;
    args.from = data;
    args.from_strides = strides;
  }
  return args;
}

/// [batch][head][token][dim], as buffers are.
std::array<std::int64_t, 4> buffer_order(const std::array<std::int64_t, 4>& strides) {
  return {strides[0], strides[2], strides[1], strides[3]};
}

std::byte* advance(void* data, std::int64_t elements, DType dtype) {
  return static_cast<std::byte*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
}
std::byte* advance(const BufferTable::Part& part, std::int64_t elements) {
  return advance(part.data, elements, part.shape.dtype);
}

/// Where each own segment begins in a rank's tensors; −1: not its own.
std::vector<std::int64_t> first_tokens(const std::vector<Segment>& segments, Rank rank) {
  std::vector<std::int64_t> first;
  std::int64_t token = 0;
  for (const Segment& segment : segments) {
    first.push_back(segment.owner == rank ? token : -1);
    if (segment.owner == rank) token += segment.run.count;
  }
  return first;
}

const HeadGroup& group_at(const Sharding& sharding, int group) { return sharding.groups[index(group)]; }

/// The first group that has the first key head of `group`. Groups follow each other, so no other head of a group is in
/// an earlier one.
int first_group_with(const Sharding& sharding, int group) {
  const int head = group_at(sharding, group).kv0;
  int first = group;
  while (first > 0 && group_at(sharding, first - 1).kv0 + group_at(sharding, first - 1).kv_count > head) --first;
  return first;
}

/// Whether the gradients of one of the group's key heads are summed with another group's.
bool shares_key_heads(const Sharding& sharding, int group) {
  const HeadGroup& one = group_at(sharding, group);
  return std::any_of(sharding.groups.begin(), sharding.groups.end(), [&](const HeadGroup& other) {
    return &other != &one && other.kv0 < one.kv0 + one.kv_count && one.kv0 < other.kv0 + other.kv_count;
  });
}

/// Whether kernels can take the tensor's rows as they lie.
bool has_rows_of(const ConstTensorView& tensor, DType dtype) {
  return tensor.dtype == dtype && (tensor.strides[3] == 1 || tensor.head_dim() == 1) &&
         reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(dtype) == 0;
}

bool is_statistic(Tensor tensor) { return tensor == Tensor::lse || tensor == Tensor::lse_low; }

/// Whether the caller did without it.
bool is_left_out(const Bindings& bindings, Tensor tensor) {
  return tensor == Tensor::lse_low && bindings.lse_low.data == nullptr;
}

/// One side of a rearrangement in the tensor.
kernels::RearrangeArgs with_source(kernels::RearrangeArgs args, const ConstTensorView& tensor, const std::byte* first) {
  args.from_dtype = tensor.dtype;
  args.from = first;
  args.from_strides = buffer_order(tensor.strides);
  return args;
}

}  // namespace

Staging::Staging(const BufferTable& buffers, const DeltaPieces& pieces, Placement* placement)
    : placement_(placement),
      pass_(buffers.outline().pass),
      pieces_at_hand_(index(pieces.at_hand)),
      shared_keys_(buffers, placement != nullptr) {
  const Outline& outline = buffers.outline();
  const Rank rank = buffers.rank();
  const auto queries = first_tokens(outline.sharding.queries, rank), keys = first_tokens(outline.sharding.keys, rank);
  for (const Segment& segment : outline.sharding.queries) {
    if (segment.owner == rank) piece_rows_ = std::max(piece_rows_, std::min(segment.run.count, pieces.rows));
  }
  std::map<std::pair<SegmentId, int>, BufferId> key_gradients;
  for (std::size_t i = 0; i < buffers.program().buffers.size(); ++i) {
    const auto buffer = static_cast<BufferId>(i);
    const Value& value = buffers.decl(buffer).value;
    const std::int64_t token = (is_key_side(value.kind) ? keys : queries)[index(value.segment)];
    if (token < 0 || buffers.parts(buffer)[0].shape.tokens == 0) continue;
    if (is_input(value.kind)) place_input(buffers, buffer, token, pieces);
    if (is_input(value.kind) || value.contributor != rank) continue;
    place_result(buffers, buffer, token);
    if (value.kind == ValueKind::dkey_value) key_gradients[{value.segment, value.group}] = buffer;
  }
  place_sums(buffers, key_gradients);
  if (outline.sharding.problem.scores.sink_logits) sinks_.emplace(buffers, pieces.allocate);
  arguments_.reserve(std::max({inputs_.size(), results_.size(), pieces_at_hand_}));
  delta_arguments_.reserve(deltas_.size());
}

void Staging::place_input(const BufferTable& buffers, BufferId buffer, std::int64_t token, const DeltaPieces& pieces) {
  const auto parts = buffers.parts(buffer);
  const Value& value = buffers.decl(buffer).value;
  const Sharding& sharding = buffers.outline().sharding;
  const HeadGroup& group = group_at(sharding, value.group);
  const bool may_move = placement_ != nullptr && placement_->may_move(buffer);
  const auto place = [&](Tensor tensor, std::size_t part, int head) {
    inputs_.push_back({tensor, 0, token, head, packed_side(parts[part], sharding.problem.batch, 0, true), buffer, part,
                       parts[part].shape.bytes, may_move && !is_statistic(tensor)});
  };
  if (value.kind == ValueKind::key_value) {
    place(Tensor::k, 0, group.kv0);
    if (!sharding.problem.shared_kv) place(Tensor::v, 1, group.kv0);
    return;
  }
  place(Tensor::q, 0, group.q0);
  if (pass_ == Pass::forward) return;
  place(Tensor::d_o, 1, group.q0);
  place(Tensor::lse, 2, group.q0);
  if (sharding.problem.sends_low_lse()) place(Tensor::lse_low, 5, group.q0);
  place_delta(buffers, buffer, token, pieces);
}

void Staging::place_delta(const BufferTable& buffers, BufferId query, std::int64_t token, const DeltaPieces& pieces) {
  const Part &d_o = buffers.parts(query)[1], &delta = buffers.parts(query)[3];
  const Problem& problem = buffers.outline().sharding.problem;
  const DType accumulator = problem.accumulator();
  const int dim = problem.value_dim, heads = d_o.shape.heads;
  const std::int64_t tokens = d_o.shape.tokens;
  const std::size_t piece_bytes = index(piece_rows_ * dim) * size_of(accumulator);
  if (scratch_ == nullptr) scratch_ = pieces.allocate(pieces_at_hand_ * piece_bytes);
  const int head0 = group_at(buffers.outline().sharding, buffers.decl(query).value.group).q0;
  float* const products = shared_keys_.products_of(query);

  for (std::int64_t item = 0; item < problem.batch * heads; ++item) {
    for (std::int64_t first = 0; first < tokens; first += piece_rows_) {
      const std::int64_t rows = std::min(piece_rows_, tokens - first), row = item * tokens + first;
      std::byte* packed = scratch_.get() + deltas_.size() % pieces_at_hand_ * piece_bytes;
      DeltaPiece& piece = deltas_.emplace_back();
      piece.query = query;
      piece.batch = item / heads;
      piece.head = item % heads;
      piece.token = first;
      piece.tensor_head = head0 + piece.head;
      piece.tensor_token = token + first;
      piece.packed_o.shape = {1, 1, rows, dim};
      piece.packed_o.into_dtype = accumulator;
      piece.packed_o.into = packed;
      piece.packed_o.into_strides = {rows * dim, rows * dim, dim, 1};
      piece.packed = {d_o.shape.dtype,
                      accumulator,
                      rows,
                      dim,
                      packed,
                      dim,
                      advance(d_o, row * dim),
                      dim,
                      advance(delta, row),
                      products == nullptr ? nullptr : products + row};
    }
  }
}

void Staging::place_result(const BufferTable& buffers, BufferId buffer, std::int64_t token) {
  const auto parts = buffers.parts(buffer);
  const Value& value = buffers.decl(buffer).value;
  const Sharding& sharding = buffers.outline().sharding;
  const HeadGroup& group = group_at(sharding, value.group);
  const bool may_move = placement_ != nullptr && placement_->may_move(buffer) &&
                        !(is_key_side(value.kind) && shares_key_heads(sharding, value.group));
  const auto place = [&](Tensor tensor, std::size_t part, int head, int skip) {
    if (parts[part].shape.heads == skip) return;
    results_.push_back({tensor, 0, token, head + skip, packed_side(parts[part], sharding.problem.batch, skip, false),
                        buffer, part, parts[part].shape.bytes, may_move && !is_statistic(tensor)});
  };
  if (value.kind == ValueKind::output) {
    place(Tensor::o, 0, group.q0, 0);
    place(Tensor::lse, 1, group.q0, 0);
    if (sharding.problem.has_low_lse()) place(Tensor::lse_low, 2, group.q0, 0);
  } else if (value.kind == ValueKind::dquery) {
    place(Tensor::dq, 0, group.q0, 0);
  } else {
    const int skip = first_group_with(sharding, value.group) < value.group ? 1 : 0;
    place(Tensor::dk, 0, group.kv0, skip);
    if (!sharding.problem.shared_kv) place(Tensor::dv, 1, group.kv0, skip);
  }
}

/// A group's first key head is added to the first group that has it, in the n-th list if it is the n-th to be added.
void Staging::place_sums(const BufferTable& buffers, const std::map<std::pair<SegmentId, int>, BufferId>& gradients) {
  const Sharding& sharding = buffers.outline().sharding;
  for (const auto& [key, buffer] : gradients) {
    const auto [segment, group] = key;
    const int first = first_group_with(sharding, group);
    if (first == group) continue;
    const auto round = index(group - first) - 1;
    if (sums_.size() <= round) sums_.resize(round + 1);
    const auto into = buffers.parts(gradients.at({segment, first})), from = buffers.parts(buffer);
    const int head = group_at(sharding, group).kv0 - group_at(sharding, first).kv0;
    for (std::size_t part = 0; part < from.size(); ++part) {
      const std::int64_t size = from[part].shape.tokens * from[part].shape.dim;
      for (std::int64_t b = 0; b < sharding.problem.batch; ++b) {
        sums_[round].push_back({sharding.problem.accumulator(), size,
                                advance(into[part], (b * into[part].shape.heads + head) * size), from[part].shape.dtype,
                                advance(from[part], b * from[part].shape.heads * size)});
      }
    }
  }
}

void Staging::place(const Bindings& bindings, std::span<Piece> pieces) {
  for (Piece& piece : pieces) {
    if (!piece.may_move) continue;
    const bool result = piece.packed.into == nullptr;
    const ConstTensorView tensor = view(bindings, piece.tensor);
    const DType dtype = result ? piece.packed.from_dtype : piece.packed.into_dtype;
    piece.in_place = has_rows_of(tensor, dtype) && !(result && may_overlap_inputs(bindings, piece.tensor, pass_));
    if (piece.in_place) {
      // Inputs are placed as results are; kernels read them alone.
      auto* const first = const_cast<std::byte*>(tensor.row(piece.batch, piece.token, piece.head));
      placement_->move(piece.buffer, piece.part, {first, {tensor.strides[0], tensor.strides[2], tensor.strides[1]}});
    } else {
      placement_->move_back(piece.buffer, piece.part);
    }
  }
}

std::span<const kernels::RearrangeArgs> Staging::packing(const Bindings& bindings) {
  arguments_.clear();
  for (const Piece& piece : inputs_) {
    if (piece.in_place || is_left_out(bindings, piece.tensor)) continue;
    const ConstTensorView tensor = view(bindings, piece.tensor);
    arguments_.push_back(with_source(piece.packed, tensor, tensor.row(piece.batch, piece.token, piece.head)));
  }
  return arguments_;
}

std::span<const kernels::RearrangeArgs> Staging::unpacking(const Bindings& bindings) {
  arguments_.clear();
  for (const Piece& piece : results_) {
    if (piece.in_place || is_left_out(bindings, piece.tensor)) continue;
    const TensorView tensor = result_view(bindings, piece.tensor);
    kernels::RearrangeArgs& args = arguments_.emplace_back(piece.packed);
    args.into_dtype = tensor.dtype;
    args.into = tensor.row(piece.batch, piece.token, piece.head);
    args.into_strides = buffer_order(tensor.strides);
  }
  return arguments_;
}

void Staging::compute_delta(const Bindings& bindings, StagingKernels& kernels) {
  const ConstTensorView o = bindings.o;
  const bool in_place = placement_ != nullptr && has_rows_of(o, deltas_.front().packed.accumulator);
  const std::size_t together = in_place ? deltas_.size() : pieces_at_hand_;
  for (std::size_t first = 0; first < deltas_.size(); first += together) {
    arguments_.clear();
    delta_arguments_.clear();
    for (std::size_t i = first; i < std::min(first + together, deltas_.size()); ++i) {
      const DeltaPiece& piece = deltas_[i];
      const std::byte* const rows = o.row(piece.batch, piece.tensor_token, piece.tensor_head);
      kernels::DeltaArgs& args = delta_arguments_.emplace_back(piece.packed);
      if (in_place) {
        args.o = rows;
        args.o_stride = o.strides[1];
      } else {
        arguments_.push_back(with_source(piece.packed_o, o, rows));
      }
      if (placement_ == nullptr) continue;
      const kernels::Rows& d_o = placement_->rows(piece.query, 1);
      args.d_o = advance(d_o.data, d_o.offset(piece.batch, piece.head, piece.token), args.dtype);
      args.d_o_stride = d_o.strides.token;
    }
    kernels.rearrange(arguments_);
    kernels.delta(delta_arguments_);
  }
}

void Staging::load(const Bindings& bindings, StagingKernels& kernels) {
  place(bindings, inputs_);
  place(bindings, results_);
  for (const Piece& piece : inputs_) {
    if (is_left_out(bindings, piece.tensor)) kernels.clear(piece.packed.into, piece.bytes);
  }
  kernels.rearrange(packing(bindings));
  kernels.share(shared_keys_.to_find(placement_));
  if (!deltas_.empty()) compute_delta(bindings, kernels);
  if (sinks_) sinks_->load(bindings, kernels);
}

void Staging::store(const Bindings& bindings, StagingKernels& kernels) {
  kernels.settle(shared_keys_.to_settle(placement_));
  for (const auto& list : sums_) kernels.accumulate(list);
  if (sinks_) sinks_->store(bindings, placement_, kernels);
  kernels.rearrange(unpacking(bindings));
}

}  // namespace distattn::backends

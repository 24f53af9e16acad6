#include "backends/staging.hpp"

#include <algorithm>

namespace distattn::backends {
namespace {

/// The part as one side of a rearrangement, from head `first` on.
kernels::RearrangeArgs packed_side(const BufferTable::Part& part, std::int64_t batch, int first, bool into) {
  const PartShape& shape = part.shape;
  const std::int64_t head = shape.tokens * shape.dim;
  std::byte* data = part.data + static_cast<std::size_t>(first * head) * size_of(shape.dtype);
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

std::byte* advance(const BufferTable::Part& part, std::int64_t elements) {
  return part.data + static_cast<std::size_t>(elements) * size_of(part.shape.dtype);
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

const HeadGroup& group_at(const Sharding& sharding, int group) {
  return sharding.groups[static_cast<std::size_t>(group)];
}

/// The first group that has the first key head of `group`. Groups follow each other, so no other head of a group is in
/// an earlier one.
int first_group_with(const Sharding& sharding, int group) {
  const int head = group_at(sharding, group).kv0;
  int first = group;
  while (first > 0 && group_at(sharding, first - 1).kv0 + group_at(sharding, first - 1).kv_count > head) --first;
  return first;
}

}  // namespace

Staging::Staging(const BufferTable& buffers, const DeltaPieces& pieces)
    : pieces_at_hand_(static_cast<std::size_t>(pieces.at_hand)) {
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
  arguments_.reserve(std::max({inputs_.size(), results_.size(), pieces_at_hand_}));
}

void Staging::place_input(const BufferTable& buffers, BufferId buffer, std::int64_t token,
                          const DeltaPieces& pieces) {
  const auto parts = buffers.parts(buffer);
  const Value& value = buffers.decl(buffer).value;
  const Sharding& sharding = buffers.outline().sharding;
  const HeadGroup& group = group_at(sharding, value.group);
  const auto place = [&](Tensor tensor, const Part& part, int head) {
    inputs_.push_back({tensor, 0, token, head, packed_side(part, sharding.problem.batch, 0, true)});
  };
  if (value.kind == ValueKind::key_value) {
    place(Tensor::k, parts[0], group.kv0);
    place(Tensor::v, parts[1], group.kv0);
    return;
  }
  place(Tensor::q, parts[0], group.q0);
  if (buffers.outline().pass == Pass::forward) return;
  place(Tensor::d_o, parts[1], group.q0);
  place(Tensor::lse, parts[2], group.q0);
  place_delta(buffers, buffer, token, pieces);
}

void Staging::place_delta(const BufferTable& buffers, BufferId query, std::int64_t token,
                          const DeltaPieces& pieces) {
  const Part &d_o = buffers.parts(query)[1], &delta = buffers.parts(query)[3];
  const Problem& problem = buffers.outline().sharding.problem;
  const DType accumulator = problem.accumulator();
  const int dim = problem.value_dim, heads = d_o.shape.heads;
  const std::int64_t tokens = d_o.shape.tokens;
  const std::size_t piece_bytes = static_cast<std::size_t>(piece_rows_ * dim) * size_of(accumulator);
  if (scratch_ == nullptr) scratch_ = pieces.allocate(pieces_at_hand_ * piece_bytes);
  const int head0 = group_at(buffers.outline().sharding, buffers.decl(query).value.group).q0;

  for (std::int64_t item = 0; item < problem.batch * heads; ++item) {
    for (std::int64_t first = 0; first < tokens; first += piece_rows_) {
      const std::int64_t rows = std::min(piece_rows_, tokens - first), row = item * tokens + first;
      std::byte* packed = scratch_.get() + outputs_.size() % pieces_at_hand_ * piece_bytes;
      kernels::RearrangeArgs args;
      args.shape = {1, 1, rows, dim};
      args.into_dtype = accumulator;
      args.into = packed;
      args.into_strides = {rows * dim, rows * dim, dim, 1};
      outputs_.push_back({Tensor::o, item / heads, token + first, head0 + item % heads, args});
      deltas_.push_back({d_o.shape.dtype, accumulator, rows, dim, packed, advance(d_o, row * dim),
                         advance(delta, row)});
    }
  }
}

void Staging::place_result(const BufferTable& buffers, BufferId buffer, std::int64_t token) {
  const auto parts = buffers.parts(buffer);
  const Value& value = buffers.decl(buffer).value;
  const Sharding& sharding = buffers.outline().sharding;
  const HeadGroup& group = group_at(sharding, value.group);
  const auto place = [&](Tensor tensor, const Part& part, int head, int skip) {
    if (part.shape.heads == skip) return;
    results_.push_back(
        {tensor, 0, token, head + skip, packed_side(part, sharding.problem.batch, skip, false)});
  };
  if (value.kind == ValueKind::output) {
    place(Tensor::o, parts[0], group.q0, 0);
    place(Tensor::lse, parts[1], group.q0, 0);
  } else if (value.kind == ValueKind::dquery) {
    place(Tensor::dq, parts[0], group.q0, 0);
  } else {
    const int skip = first_group_with(sharding, value.group) < value.group ? 1 : 0;
    place(Tensor::dk, parts[0], group.kv0, skip);
    place(Tensor::dv, parts[1], group.kv0, skip);
  }
}

/// A group's first key head is added to the first group that has it, in the n-th list if it is the n-th to be added.
void Staging::place_sums(const BufferTable& buffers,
                         const std::map<std::pair<SegmentId, int>, BufferId>& gradients) {
  const Sharding& sharding = buffers.outline().sharding;
  for (const auto& [key, buffer] : gradients) {
    const auto [segment, group] = key;
    const int first = first_group_with(sharding, group);
    if (first == group) continue;
    const auto round = static_cast<std::size_t>(group - first) - 1;
    if (sums_.size() <= round) sums_.resize(round + 1);
    const auto into = buffers.parts(gradients.at({segment, first})), from = buffers.parts(buffer);
    const int head = group_at(sharding, group).kv0 - group_at(sharding, first).kv0;
    for (std::size_t part = 0; part < from.size(); ++part) {
      const std::int64_t size = from[part].shape.tokens * from[part].shape.dim;
      for (std::int64_t b = 0; b < sharding.problem.batch; ++b) {
        sums_[round].push_back({sharding.problem.accumulator(), size,
                                advance(into[part], (b * into[part].shape.heads + head) * size),
                                from[part].shape.dtype, advance(from[part], b * from[part].shape.heads * size)});
      }
    }
  }
}

ConstTensorView Staging::view(const Bindings& bindings, Tensor tensor) {
  switch (tensor) {
    case Tensor::q: return bindings.q;
    case Tensor::k: return bindings.k;
    case Tensor::v: return bindings.v;
    case Tensor::d_o: return bindings.d_o;
    case Tensor::o:
    case Tensor::lse:
    case Tensor::dq:
    case Tensor::dk:
    case Tensor::dv: break;
  }
  return result_view(bindings, tensor);
}

TensorView Staging::result_view(const Bindings& bindings, Tensor tensor) {
  switch (tensor) {
    case Tensor::o: return bindings.o;
    case Tensor::lse: return bindings.lse;
    case Tensor::dq: return bindings.dq;
    case Tensor::dk: return bindings.dk;
    case Tensor::dv: return bindings.dv;
    case Tensor::q:
    case Tensor::k:
    case Tensor::v:
    case Tensor::d_o: break;
  }
  detail::expectation_failed("a tensor that a pass writes", __FILE__, __LINE__);
}

std::span<const kernels::RearrangeArgs> Staging::packing(const Bindings& bindings, std::span<const Piece> pieces) {
  arguments_.clear();
  for (const Piece& piece : pieces) {
    const ConstTensorView tensor = view(bindings, piece.tensor);
    kernels::RearrangeArgs& args = arguments_.emplace_back(piece.packed);
    args.from_dtype = tensor.dtype;
    args.from = tensor.row(piece.batch, piece.token, piece.head);
    args.from_strides = buffer_order(tensor.strides);
  }
  return arguments_;
}

std::span<const kernels::RearrangeArgs> Staging::unpacking(const Bindings& bindings, std::span<const Piece> pieces) {
  arguments_.clear();
  for (const Piece& piece : pieces) {
    const TensorView tensor = result_view(bindings, piece.tensor);
    kernels::RearrangeArgs& args = arguments_.emplace_back(piece.packed);
    args.into_dtype = tensor.dtype;
    args.into = tensor.row(piece.batch, piece.token, piece.head);
    args.into_strides = buffer_order(tensor.strides);
  }
  return arguments_;
}

void Staging::load(const Bindings& bindings, StagingKernels& kernels) {
  kernels.rearrange(packing(bindings, inputs_));
  for (std::size_t first = 0; first < outputs_.size(); first += pieces_at_hand_) {
    const std::size_t count = std::min(pieces_at_hand_, outputs_.size() - first);
    kernels.rearrange(packing(bindings, std::span(outputs_).subspan(first, count)));
    kernels.delta(std::span(deltas_).subspan(first, count));
  }
}

void Staging::store(const Bindings& bindings, StagingKernels& kernels) {
  for (const auto& list : sums_) kernels.accumulate(list);
  kernels.rearrange(unpacking(bindings, results_));
}

}  // namespace distattn::backends

#include "kernels/reference/oracle.hpp"

#include "kernels/elementwise.hpp"
#include "kernels/reference/reference.hpp"

namespace distattn::kernels::reference {

namespace {

const StopFlag never{false};

// [batch][head][token][dim] of a tensor whose axes are batch, sequence, heads, dim.
std::array<std::int64_t, 4> by_head(const std::array<std::int64_t, 4>& axes) {
  return {axes[0], axes[2], axes[1], axes[3]};
}

std::vector<double> packed(const ConstTensorView& tensor, Team& team) {
  const auto [batch, sequence, heads, dim] = tensor.shape;
  std::vector<double> values(static_cast<std::size_t>(batch * sequence * heads * dim));
  const RearrangeArgs args{.shape = by_head(tensor.shape),
                           .into_dtype = DType::fp64,
                           .into = values.data(),
                           .into_strides = {heads * sequence * dim, sequence * dim, dim, 1},
                           .from_dtype = tensor.dtype,
                           .from = tensor.data,
                           .from_strides = by_head(tensor.strides)};
  rearrange({&args, 1}, team, never);
  return values;
}

std::vector<double> unpacked(const std::vector<double>& values, const ConstTensorView& like, std::int64_t dim,
                             Team& team) {
  const auto [batch, sequence, heads, own_dim] = like.shape;
  std::vector<double> result(values.size());
  const RearrangeArgs args{.shape = {batch, heads, sequence, dim},
                           .into_dtype = DType::fp64,
                           .into = result.data(),
                           .into_strides = {sequence * heads * dim, dim, heads * dim, 1},
                           .from_dtype = DType::fp64,
                           .from = values.data(),
                           .from_strides = {heads * sequence * dim, sequence * dim, dim, 1}};
  rearrange({&args, 1}, team, never);
  return result;
}

}  // namespace

Exact compute_exactly(const WholeAttention& attention, Team& team) {
  const auto q = packed(attention.q, team), k = packed(attention.k, team), v = packed(attention.v, team);
  const int heads = static_cast<int>(attention.q.heads()), kv_heads = static_cast<int>(attention.k.heads());
  const TileShape shape{.dtype = DType::fp64,
                        .batch = attention.q.batch(),
                        .heads = {.q_count = heads, .kv_count = kv_heads, .per_kv = heads / kv_heads},
                        .head_dim = static_cast<int>(attention.q.head_dim()),
                        .value_dim = static_cast<int>(attention.v.head_dim()),
                        .scale = attention.scale};
  std::vector<double> dk(k.size()), dv(v.size());
  const std::int64_t queries = attention.queries.count, keys = attention.keys.count;
  const KeySide side{.k = packed_rows(k.data(), kv_heads, keys, shape.head_dim),
                     .v = packed_rows(v.data(), kv_heads, keys, shape.value_dim),
                     .keys = attention.keys,
                     .bands = attention.bands,
                     .dk = packed_rows(dk.data(), kv_heads, keys, shape.head_dim),
                     .dv = packed_rows(dv.data(), kv_heads, keys, shape.value_dim)};
  const std::int64_t rows = shape.batch * heads * queries;
  std::vector<double> o(static_cast<std::size_t>(rows * shape.value_dim));
  Exact exact;
  exact.lse.resize(static_cast<std::size_t>(rows));
  const AttendArgs forward{.shape = shape,
                           .q = packed_rows(q.data(), heads, queries, shape.head_dim),
                           .queries = attention.queries,
                           .keys = {&side, 1},
                           .o = packed_rows(o.data(), heads, queries, shape.value_dim),
                           .lse = exact.lse.data()};
  attend({&forward, 1}, team, never);
  exact.o = unpacked(o, attention.q, shape.value_dim, team);
  if (attention.d_o.data == nullptr) return exact;

  const auto d_o = packed(attention.d_o, team);
  std::vector<double> delta_rows(exact.lse.size()), dq(q.size());
  const DeltaArgs row_sums{.dtype = DType::fp64,
                           .accumulator = DType::fp64,
                           .rows = rows,
                           .dim = shape.value_dim,
                           .o = o.data(),
                           .o_stride = shape.value_dim,
                           .d_o = d_o.data(),
                           .d_o_stride = shape.value_dim,
                           .delta = delta_rows.data()};
  delta({&row_sums, 1}, team, never);
  const AttendBackwardArgs backward{.shape = shape,
                                    .q = packed_rows(q.data(), heads, queries, shape.head_dim),
                                    .d_o = packed_rows(d_o.data(), heads, queries, shape.value_dim),
                                    .lse = exact.lse.data(),
                                    .delta = delta_rows.data(),
                                    .queries = attention.queries,
                                    .keys = {&side, 1},
                                    .dq = packed_rows(dq.data(), heads, queries, shape.head_dim)};
  attend_backward({&backward, 1}, team, never);
  exact.dq = unpacked(dq, attention.q, shape.head_dim, team);
  exact.dk = unpacked(dk, attention.k, shape.head_dim, team);
  exact.dv = unpacked(dv, attention.k, shape.value_dim, team);
  return exact;
}

}  // namespace distattn::kernels::reference

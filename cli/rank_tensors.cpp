#include "rank_tensors.hpp"

namespace distattn::cli {
namespace {

std::int64_t tokens_of(std::span<const Segment> segments, Rank rank) {
  std::int64_t tokens = 0;
  for (const Segment& segment : segments) tokens += segment.owner == rank ? segment.run.count : 0;
  return tokens;
}

/// The rank's tokens of one tensor, [batch][token][head][dim].
std::vector<std::byte> read_shard(const Inputs& inputs, Tensor tensor, std::span<const Segment> segments, Rank rank,
                                  std::int64_t first_position, DType dtype) {
  const std::int64_t tokens = tokens_of(segments, rank), heads = inputs.heads(tensor);
  const std::size_t row = static_cast<std::size_t>(heads * inputs.dim(tensor)) * size_of(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(inputs.shape().batch * tokens) * row);
  std::byte* into = bytes.data();
  for (std::int64_t b = 0; b < inputs.shape().batch; ++b) {
    for (const Segment& segment : segments) {
      if (segment.owner != rank) continue;
      for (std::int64_t i = 0; i < segment.run.count; ++i, into += row) {
        inputs.read(tensor, b, segment.run.at(i) - first_position, 0, heads, dtype, into);
      }
    }
  }
  return bytes;
}

}  // namespace

RankTensors::RankTensors(const Sharding& sharding, Rank rank, const Inputs& inputs, Passes passes)
    : rank_(rank),
      dtype_(sharding.problem.dtype),
      accumulator_(sharding.problem.accumulator()),
      batch_(sharding.problem.batch),
      queries_(tokens_of(sharding.queries, rank)),
      keys_(tokens_of(sharding.keys, rank)),
      heads_(sharding.problem.heads),
      kv_heads_(sharding.problem.kv_heads),
      head_dim_(sharding.problem.head_dim),
      value_dim_(sharding.problem.value_dim),
      q_(read_shard(inputs, Tensor::q, sharding.queries, rank, sharding.problem.first_query(), dtype_)),
      k_(read_shard(inputs, Tensor::k, sharding.keys, rank, 0, dtype_)),
      v_(read_shard(inputs, Tensor::v, sharding.keys, rank, 0, dtype_)) {
  const auto room = [&](std::int64_t elements) {
    return Bytes(static_cast<std::size_t>(elements) * size_of(accumulator_));
  };
  o_ = room(batch_ * queries_ * heads_ * value_dim_);
  lse_ = room(batch_ * queries_ * heads_);
  if (passes == Passes::forward) return;
  d_o_ = read_shard(inputs, Tensor::d_o, sharding.queries, rank, sharding.problem.first_query(), dtype_);
  dq_ = room(batch_ * queries_ * heads_ * head_dim_);
  dk_ = room(batch_ * keys_ * kv_heads_ * head_dim_);
  dv_ = room(batch_ * keys_ * kv_heads_ * value_dim_);
}

Bindings RankTensors::bindings() {
  Bindings bindings;
  bindings.q = view(q_, dtype_, heads_, head_dim_, queries_);
  bindings.k = view(k_, dtype_, kv_heads_, head_dim_, keys_);
  bindings.v = view(v_, dtype_, kv_heads_, value_dim_, keys_);
  bindings.o = view(o_, accumulator_, heads_, value_dim_, queries_);
  bindings.lse = statistics_view(lse_.data(), accumulator_, batch_, heads_, queries_);
  bindings.d_o = view(d_o_, dtype_, heads_, value_dim_, queries_);
  bindings.dq = view(dq_, accumulator_, heads_, head_dim_, queries_);
  bindings.dk = view(dk_, accumulator_, kv_heads_, head_dim_, keys_);
  bindings.dv = view(dv_, accumulator_, kv_heads_, value_dim_, keys_);
  return bindings;
}

ConstTensorView RankTensors::lse() const {
  return statistics_view(lse_.data(), accumulator_, batch_, heads_, queries_);
}

double RankTensors::total_bytes(const Problem& problem, Passes passes) {
  const auto batch = static_cast<double>(problem.batch);
  const double queries = batch * static_cast<double>(problem.seq_q) * problem.heads;
  const double keys = batch * static_cast<double>(problem.seq_kv) * problem.kv_heads;
  const double query_side = queries * problem.head_dim, output = queries * problem.value_dim;
  const double key_side = keys * (problem.head_dim + problem.value_dim);
  const auto in = static_cast<double>(size_of(problem.dtype)),
             out = static_cast<double>(size_of(problem.accumulator()));
  const double forward = in * (query_side + key_side) + out * (output + queries);
  return passes == Passes::forward ? forward : forward + in * output + out * (query_side + key_side);
}

}  // namespace distattn::cli

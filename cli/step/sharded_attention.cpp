#include "cli/step/sharded_attention.hpp"

#include "cli/step/stopwatch.hpp"

namespace distattn::step {
namespace {

std::byte* bytes(const float* values) { return reinterpret_cast<std::byte*>(const_cast<float*>(values)); }

}  // namespace

ShardedAttention::ShardedAttention(const ModelShape& shape, Attention& attention)
    : shape_(shape), attention_(attention), tokens_(static_cast<std::int64_t>(attention.query_positions().size())) {}

Bindings ShardedAttention::bind(const AttentionInputs<float>& in, const float* o, const float* lse) const {
  const int dim = shape_.head_dim();
  Bindings bindings;
  bindings.q = dense_view(bytes(in.q), DType::fp32, 1, tokens_, shape_.heads, dim);
  bindings.k = dense_view(bytes(in.k), DType::fp32, 1, tokens_, shape_.kv_heads, dim);
  bindings.v = dense_view(bytes(in.v), DType::fp32, 1, tokens_, shape_.kv_heads, dim);
  bindings.o = dense_view(bytes(o), DType::fp32, 1, tokens_, shape_.heads, dim);
  bindings.lse = statistics_view(bytes(lse), DType::fp32, 1, shape_.heads, tokens_);
  bindings.lse_low = statistics_view(bytes(lse + shape_.heads * tokens_), DType::fp32, 1, shape_.heads, tokens_);
  return bindings;
}

void ShardedAttention::forward(const AttentionInputs<float>& in, float* o, float* lse) {
  const Stopwatch watch(use_.seconds);
  ++use_.forwards;
  attention_.forward(bind(in, o, lse));
}

void ShardedAttention::backward(const AttentionInputs<float>& in, const float* o, const float* lse, const float* d_o,
                                float* dq, float* dk, float* dv) {
  const Stopwatch watch(use_.seconds);
  ++use_.backwards;
  const int dim = shape_.head_dim();
  Bindings bindings = bind(in, o, lse);
  bindings.d_o = dense_view(bytes(d_o), DType::fp32, 1, tokens_, shape_.heads, dim);
  bindings.dq = dense_view(bytes(dq), DType::fp32, 1, tokens_, shape_.heads, dim);
  bindings.dk = dense_view(bytes(dk), DType::fp32, 1, tokens_, shape_.kv_heads, dim);
  bindings.dv = dense_view(bytes(dv), DType::fp32, 1, tokens_, shape_.kv_heads, dim);
  attention_.backward(bindings);
}

}  // namespace distattn::step

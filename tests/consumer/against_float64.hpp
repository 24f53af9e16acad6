#pragma once
/// One rank's forward pass on random inputs, compared with float64.

#include <algorithm>
#include <cmath>
#include <distattn/attention.hpp>
#include <distattn/convert.hpp>
#include <distattn/oracle.hpp>
#include <distattn/random.hpp>
#include <vector>

namespace consumer {

struct Tensor {
  Tensor(std::int64_t tokens, int heads, int dim)
      : values(static_cast<std::size_t>(tokens * heads * dim)),
        view(distattn::dense_view(values.data(), 1, tokens, heads, dim)) {}
  std::vector<float> values;
  distattn::TensorView view;
};

inline Tensor random_tensor(distattn::RandomTensor which, std::int64_t tokens, int heads, int dim) {
  Tensor whole(tokens, heads, dim);
  distattn::fill_normal(0, which, 0, std::ssize(whole.values), distattn::DType::fp32, whole.view.data);
  return whole;
}

/// Largest difference between this rank's outputs and float64's; a batch of 1.
inline double worst_error(distattn::Attention& attention, distattn::Rank rank) {
  using namespace distattn;
  const Sharding& sharding = attention.outline(Pass::forward).sharding;
  const Problem& p = sharding.problem;
  const Tensor q = random_tensor(RandomTensor::q, p.seq_q, p.heads, p.head_dim);
  const Tensor k = random_tensor(RandomTensor::k, p.seq_kv, p.kv_heads, p.head_dim);
  const Tensor v = random_tensor(RandomTensor::v, p.seq_kv, p.kv_heads, p.value_dim);

  const std::vector<std::int64_t> queries = attention.query_positions();
  const std::int64_t keys = std::ssize(attention.key_positions());
  Tensor my_q(std::ssize(queries), p.heads, p.head_dim), my_k(keys, p.kv_heads, p.head_dim),
      my_v(keys, p.kv_heads, p.value_dim), my_o(std::ssize(queries), p.heads, p.value_dim);
  std::vector<float> lse(queries.size() * static_cast<std::size_t>(p.heads));
  gather(q.view, p.first_query(), sharding.queries, rank, my_q.view);
  gather(k.view, 0, sharding.keys, rank, my_k.view);
  gather(v.view, 0, sharding.keys, rank, my_v.view);
  attention.forward({.q = my_q.view,
                     .k = my_k.view,
                     .v = my_v.view,
                     .o = my_o.view,
                     .lse = statistics_view(lse.data(), 1, p.heads, std::ssize(queries))});

  const ExactResult exact = exact_attention(p, q.view, k.view, v.view, {}, 1);
  const auto row = static_cast<std::size_t>(p.heads * p.value_dim);
  double worst = 0;
  for (std::size_t i = 0; i < my_o.values.size(); ++i) {
    const auto token = static_cast<std::size_t>(queries[i / row] - p.first_query());
    worst = std::max(worst, std::abs(my_o.values[i] - exact.o[token * row + i % row]));
  }
  return worst;
}

}  // namespace consumer

#pragma once
/// One rank's forward pass on random inputs, compared with float64.

#include <algorithm>
#include <cmath>
#include <distattn/attention.hpp>
#include <distattn/convert.hpp>
#include <distattn/mask.hpp>
#include <random>
#include <vector>

namespace consumer {

struct Tensor {
  Tensor(std::int64_t tokens, int heads, int dim)
      : values(static_cast<std::size_t>(tokens * heads * dim)),
        view(distattn::dense_view(values.data(), 1, tokens, heads, dim)) {}
  std::vector<float> values;
  distattn::TensorView view;
};

enum Which : unsigned { of_q, of_k, of_v };

/// The same on every rank.
inline Tensor random_tensor(Which which, std::int64_t tokens, int heads, int dim) {
  Tensor whole(tokens, heads, dim);
  std::mt19937 bits(which);
  std::normal_distribution<float> normal;
  for (float& value : whole.values) value = normal(bits);
  return whole;
}

/// o of the query at position `at`, in float64.
inline std::vector<double> exact_row(const distattn::Problem& p, const Tensor& q, const Tensor& k, const Tensor& v,
                                     std::int64_t at, int head) {
  const auto row = [head](const Tensor& tensor, std::int64_t token, int heads, int of, int dim) {
    return &tensor.values[static_cast<std::size_t>((token * heads + head / (of / heads)) * dim)];
  };
  const std::vector<distattn::Band> bands = distattn::bands_of(p.mask);
  const float* const query = row(q, at - p.first_query(), p.heads, p.heads, p.head_dim);
  std::vector<double> o(static_cast<std::size_t>(p.value_dim));
  double sum = 0;
  for (std::int64_t j = 0; j < p.seq_kv; ++j) {
    if (std::none_of(bands.begin(), bands.end(), [&](const auto& band) { return band.holds(at, j); })) continue;
    const float* const key = row(k, j, p.kv_heads, p.heads, p.head_dim);
    double dot = 0;
    for (int i = 0; i < p.head_dim; ++i) dot += double{query[i]} * double{key[i]};
    const double weight = std::exp(dot * p.softmax_scale());  // of normal inputs: none overflows
    sum += weight;
    const float* const value = row(v, j, p.kv_heads, p.heads, p.value_dim);
    for (std::size_t i = 0; i < o.size(); ++i) o[i] += weight * double{value[i]};
  }
  for (double& each : o) each /= sum;
  return o;
}

/// A NaN is larger than any number.
inline double larger(double worst, double error) {
  return error <= worst ? worst : std::isnan(error) ? HUGE_VAL : error;
}

/// Largest difference between float64's and `o`, of the queries at these positions; a batch of 1.
inline double error_of(const distattn::Problem& p, const std::vector<std::int64_t>& queries, const Tensor& o,
                       const Tensor& q, const Tensor& k, const Tensor& v) {
  double worst = 0;
  auto value = o.values.begin();
  for (const std::int64_t at : queries) {
    for (int head = 0; head < p.heads; ++head) {
      for (const double exact : exact_row(p, q, k, v, at, head))
        worst = larger(worst, std::abs(double{*value++} - exact));
    }
  }
  return worst;
}

/// The same of what this rank computes from random inputs.
inline double worst_error(distattn::Attention& attention, distattn::Rank rank) {
  using namespace distattn;
  const Sharding& sharding = attention.outline(Pass::forward).sharding;
  const Problem& p = sharding.problem;
  const Tensor q = random_tensor(of_q, p.seq_q, p.heads, p.head_dim);
  const Tensor k = random_tensor(of_k, p.seq_kv, p.kv_heads, p.head_dim);
  const Tensor v = random_tensor(of_v, p.seq_kv, p.kv_heads, p.value_dim);

  const std::vector<std::int64_t> queries = attention.query_positions();
  const std::int64_t keys = std::ssize(attention.key_positions());
  Tensor my_q(std::ssize(queries), p.heads, p.head_dim), my_k(keys, p.kv_heads, p.head_dim),
      my_v(keys, p.kv_heads, p.value_dim), my_o(std::ssize(queries), p.heads, p.value_dim);
  std::vector<float> lse(queries.size() * static_cast<std::size_t>(p.heads));
  extract_shard(q.view, p.first_query(), sharding.queries, rank, my_q.view);
  extract_shard(k.view, 0, sharding.keys, rank, my_k.view);
  extract_shard(v.view, 0, sharding.keys, rank, my_v.view);
  attention.forward({.q = my_q.view,
                     .k = my_k.view,
                     .v = my_v.view,
                     .o = my_o.view,
                     .lse = statistics_view(lse.data(), 1, p.heads, std::ssize(queries))});

  return error_of(p, queries, my_o, q, k, v);
}

}  // namespace consumer

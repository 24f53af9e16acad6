/// Tokens decoded one after the other over a cache of keys and values that grows in place, sharded over two ranks.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <distattn/inproc.hpp>
#include <distattn/registry.hpp>

#include "against_float64.hpp"

using namespace distattn;

namespace {

constexpr std::int64_t prompt = 2090, capacity = 2100;

/// The token that came last against all `length` tokens so far.
Problem decoding(std::int64_t length) {
  return {.seq_q = 1, .seq_kv = length, .heads = 8, .kv_heads = 2, .head_dim = 64, .value_dim = 64};
}

ConstTensorView first(const consumer::Tensor& cache, std::int64_t tokens) {
  return dense_view(cache.values.data(), 1, tokens, 2, 64);
}

void put(consumer::Tensor& cache, std::size_t token, const consumer::Tensor& whole, std::int64_t position) {
  constexpr std::int64_t row = 2 * 64;
  std::copy_n(whole.values.begin() + position * row, row,
              cache.values.begin() + static_cast<std::int64_t>(token) * row);
}

}  // namespace

int main() {
  const consumer::Tensor q = consumer::random_tensor(consumer::of_q, 1, 8, 64);
  const consumer::Tensor k = consumer::random_tensor(consumer::of_k, capacity, 2, 64);
  const consumer::Tensor v = consumer::random_tensor(consumer::of_v, capacity, 2, 64);
  double worst = 0;
  run_ranks(2, [&](Rank, Transport& transport) {
    const auto device = make_device("", {.local_ranks = 2});
    consumer::Tensor my_k(capacity, 2, 64), my_v(capacity, 2, 64);
    std::size_t filled = 0;
    for (std::int64_t length = prompt; length <= capacity; ++length) {
      // Keys stay with their ranks, which the query visits; dealt out in blocks, a token's rank is the same in any
      // length. This handle serves all layers of the token.
      Attention attention(decoding(length), {.schedule = "burst", .layout = "striped:16"}, *device, transport);
      const std::vector<std::int64_t> positions = attention.key_positions();
      for (; filled < positions.size(); ++filled) {
        put(my_k, filled, k, positions[filled]);
        put(my_v, filled, v, positions[filled]);
      }
      const std::int64_t queries = attention.query_tokens();  // 1 on one rank, 0 on the other
      consumer::Tensor o(queries, 8, 64), lse(queries, 8, 1);
      attention.forward({.q = queries > 0 ? q.view : o.view,
                         .k = first(my_k, attention.key_tokens()),
                         .v = first(my_v, attention.key_tokens()),
                         .o = o.view,
                         .lse = lse.view});
      if (queries == 0) continue;
      worst = consumer::larger(worst, consumer::error_of(decoding(length), {length - 1}, o, q, k, v));
    }
  });
  std::printf("decoding: error %.1e\n", worst);
  return worst < 1e-5 ? 0 : 1;
}

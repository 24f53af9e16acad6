/// Exact causal attention over 4,096 tokens, sharded over four ranks.

#include <cstdio>
#include <distattn/attention.hpp>
#include <distattn/inproc.hpp>
#include <distattn/registry.hpp>
#include <vector>

int main() {
  const distattn::Problem problem{
      .seq_q = 4096, .seq_kv = 4096, .heads = 8, .kv_heads = 2, .head_dim = 64, .value_dim = 64};
  distattn::run_ranks(4, [&](distattn::Rank rank, distattn::Transport& transport) {
    const auto device = distattn::make_device("", {.local_ranks = 4});
    distattn::Attention attention(problem, {.schedule = "zigzag-ring"}, *device, transport);
    const std::int64_t tokens = std::ssize(attention.query_positions());  // this rank's part of the sequence
    std::vector<float> q(tokens * 8 * 64, 1), k(tokens * 2 * 64, 1), v(tokens * 2 * 64, 1), o(q.size()),
        lse(tokens * 8);
    attention.forward({.q = distattn::dense_view(q.data(), 1, tokens, 8, 64),
                       .k = distattn::dense_view(k.data(), 1, tokens, 2, 64),
                       .v = distattn::dense_view(v.data(), 1, tokens, 2, 64),
                       .o = distattn::dense_view(o.data(), 1, tokens, 8, 64),
                       .lse = distattn::statistics_view(lse.data(), 1, 8, tokens)});
    std::printf("rank %d: %lld tokens, o = %g\n", rank, static_cast<long long>(tokens), o.front());
  });
}

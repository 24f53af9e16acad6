/// Two layers whose passes run while their caller does something else.

#include <cmath>
#include <cstdio>
#include <distattn/attention.hpp>
#include <distattn/inproc.hpp>
#include <distattn/registry.hpp>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::int64_t length = 512;
constexpr int heads = 4, dim = 32;

/// One rank's part of a layer, whose values are all `value`: so is what attends to them.
struct Layer {
  Layer(std::int64_t tokens, float value)
      : q(tokens * heads * dim, 1), k(q), v(q.size(), value), o(q.size()), lse(tokens * heads) {
    const auto rows = [&](std::vector<float>& data) {
      return distattn::dense_view(data.data(), 1, tokens, heads, dim);
    };
    bindings.q = rows(q);
    bindings.k = rows(k);
    bindings.v = rows(v);
    bindings.o = rows(o);
    bindings.lse = distattn::statistics_view(lse.data(), 1, heads, tokens);
  }
  std::vector<float> q, k, v, o, lse;
  distattn::Bindings bindings;
};

void expect_all(const Layer& layer, float value) {
  for (const float each : layer.o) {
    if (std::abs(each - value) > 1e-5f) throw std::runtime_error("a queued pass computed something else");
  }
}

}  // namespace

int main() {
  const distattn::Problem problem{
      .seq_q = length, .seq_kv = length, .heads = heads, .kv_heads = heads, .head_dim = dim, .value_dim = dim};
  distattn::run_ranks(2, [&](distattn::Rank rank, distattn::Transport& transport) {
    const auto device = distattn::make_device("", {.local_ranks = 2});
    distattn::Attention attention(problem, {.schedule = "zigzag-ring"}, *device, transport);
    Layer first(attention.query_tokens(), 1), second(attention.query_tokens(), 2);
    const distattn::Event early = attention.forward(first.bindings, {});
    const distattn::Event late = attention.forward(second.bindings, {});
    // … whatever needs neither result
    early.wait();  // throws the failure of the pass
    expect_all(first, 1);
    late.wait();
    expect_all(second, 2);
    std::printf("rank %d: %zu steps in %.3g s\n", rank, attention.timeline(distattn::Pass::forward).spans.size(),
                attention.timeline(distattn::Pass::forward).seconds);
  });
}

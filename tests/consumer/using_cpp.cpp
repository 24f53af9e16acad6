/// The steps of docs/using-cpp.md: a problem, its plan, its shards, and both passes of one attention.

#include <cmath>
#include <cstdio>
#include <distattn/attention.hpp>
#include <distattn/convert.hpp>
#include <distattn/inproc.hpp>
#include <distattn/registry.hpp>
#include <memory>
#include <vector>

using namespace distattn;

/// A dense fp32 tensor [1, tokens, heads, 64] with its memory; `phase` makes its values.
struct Tensor {
  Tensor(std::int64_t tokens, int heads, double phase = 0)
      : values(static_cast<std::size_t>(tokens * heads * 64)), view(dense_view(values.data(), 1, tokens, heads, 64)) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(phase * static_cast<float>(i));
  }
  std::vector<float> values;
  TensorView view;
};

/// The whole tensors of 1000 tokens. Here they are in one memory; a data loader would read each rank's tokens alone.
struct Whole {
  Tensor q{1000, 8, 0.7}, k{1000, 2, 1.3}, v{1000, 2, 2.1}, d_o{1000, 8, 2.9};
  Tensor o{1000, 8}, dq{1000, 8}, dk{1000, 2}, dv{1000, 2};
};

void attend(const std::shared_ptr<const AttentionPlan>& plan, Rank rank, Transport& transport, Whole& whole) {
  const auto device = make_device("", {.local_ranks = plan->ranks()});  // the best that is usable here
  Attention attention(plan, *device, transport);

  // This rank's tensors hold the tokens that it owns, in the order of attention.query_positions().
  const Sharding& sharding = attention.outline(Pass::forward).sharding;
  const std::int64_t queries = attention.query_tokens(), keys = attention.key_tokens();
  Tensor q(queries, 8), k(keys, 2), v(keys, 2), o(queries, 8), d_o(queries, 8), dq(queries, 8), dk(keys, 2),
      dv(keys, 2);
  std::vector<float> lse(static_cast<std::size_t>(queries * 8));
  const std::int64_t first = sharding.problem.first_query();  // 0 here: as many queries as keys
  extract_shard(whole.q.view, first, sharding.queries, rank, q.view);
  extract_shard(whole.k.view, 0, sharding.keys, rank, k.view);
  extract_shard(whole.v.view, 0, sharding.keys, rank, v.view);
  extract_shard(whole.d_o.view, first, sharding.queries, rank, d_o.view);

  Bindings bindings{.q = q.view, .k = k.view, .v = v.view, .o = o.view};
  bindings.lse = statistics_view(lse.data(), 1, 8, queries);
  attention.forward(bindings);

  bindings.d_o = d_o.view;  // backward reads o and lse where forward left them
  bindings.dq = dq.view;
  bindings.dk = dk.view;
  bindings.dv = dv.view;
  attention.backward(bindings);

  insert_shard(o.view, sharding.queries, rank, first, whole.o.view);
  insert_shard(dq.view, sharding.queries, rank, first, whole.dq.view);
  insert_shard(dk.view, sharding.keys, rank, 0, whole.dk.view);
  insert_shard(dv.view, sharding.keys, rank, 0, whole.dv.view);
}

/// Plans and proves for all ranks, which are threads of this process and share the plan.
Whole attend_on(int ranks, const char* schedule) {
  // 8 query heads that share 2 key heads; causal, and no query sees more than the last 256 keys.
  const Problem problem{
      .seq_q = 1000, .seq_kv = 1000, .heads = 8, .kv_heads = 2, .head_dim = 64, .value_dim = 64, .mask = {.left = 255}};
  ScheduleRequest options;
  options.schedule = schedule;
  options.passes = Passes::both;
  const auto plan = std::make_shared<const AttentionPlan>(problem, ranks, options);
  std::printf("%s on %d ranks: %lld tiles forward\n", plan->name().c_str(), ranks,
              static_cast<long long>(plan->counts(Pass::forward).tiles));
  Whole whole;
  run_ranks(ranks, [&](Rank rank, Transport& transport) { attend(plan, rank, transport, whole); });
  return whole;
}

int main() {
  const Whole one = attend_on(1, "ring"), four = attend_on(4, "zigzag-ring");
  double worst = 0;
  for (const auto& [a, b] :
       {std::pair(&one.o, &four.o), {&one.dq, &four.dq}, {&one.dk, &four.dk}, {&one.dv, &four.dv}}) {
    for (std::size_t i = 0; i < a->values.size(); ++i) worst = std::fmax(worst, std::fabs(a->values[i] - b->values[i]));
  }
  std::printf("largest difference between them: %.1e\n", worst);
  return 0 < worst && worst < 1e-4 ? 0 : 1;
}

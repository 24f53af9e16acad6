/// What makes scores of products, and the term that rows have besides their keys: every schedule computes the same.

#include <cmath>

#include "catch.hpp"
#include "cli/tools/tolerance.hpp"
#include "distattn/error.hpp"
#include "distattn/registry.hpp"
#include "distattn/table.hpp"
#include "distattn/tree.hpp"
#include "tests/support/problems.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/sharded.hpp"

using namespace distattn;
using test::Inputs;
using test::run_sharded;
using test::ShardedRun;

namespace {

constexpr std::uint64_t scores_seed = 21;

/// Whose masks, heads and scores have something of everything.
Problem problem_with(double softcap, bool sink_logits) {
  Problem problem;
  problem.batch = 2;
  problem.seq_q = problem.seq_kv = 61;
  problem.heads = 6;
  problem.kv_heads = 2;
  problem.head_dim = 24;
  problem.value_dim = 16;
  problem.mask.left = 19;
  problem.mask.sinks = 2;
  problem.mask.documents = {0, 23, 24, 61};
  problem.scores = {.scale = 0, .softcap = softcap, .sink_logits = sink_logits};
  return problem;
}

/// Those that compute caps and sinks.
std::vector<std::string> backends_of_scores() {
  Problem scored{.seq_q = 8, .seq_kv = 8, .head_dim = 8, .value_dim = 8};
  scored.scores.softcap = 1;
  scored.scores.sink_logits = true;
  std::vector<std::string> names;
  for (const BackendInfo& info : list_backends()) {
    if (info.kind != BackendKind::device || !info.usable) continue;
    const auto device = make_device(info.name, {});
    if (device->space() == MemorySpace::host && device->why_not(scored, Pass::backward).empty())
      names.push_back(info.name);
  }
  return names;
}

/// Every schedule agrees with float64: for three ranks on every device of the host, for others, and under sanitizers,
/// on one device after the other, because what a device computes does not depend on how many there are. Returns the
/// number of runs.
int check_scores(const Problem& problem, int ranks, double most) {
  const Inputs inputs(problem, scores_seed);
  const ExactResult exact = test::exact_of(inputs);
  std::vector<std::string> backends = backends_of_scores();
  std::erase_if(backends, [&](const std::string& backend) {
    return !make_device(backend, {})->why_not(problem, Pass::backward).empty();
  });
  int count = 0;
  static std::size_t turn = 0;
  for (const std::string& name : all_schedule_names(problem, ranks)) {
    if (!std::holds_alternative<Recipe>(resolve_schedule(name, problem, ranks))) continue;
    const std::string next = backends.at(++turn % backends.size());
    for (const std::string& backend : ranks == 3 && !is_sanitized ? backends : std::vector{next}) {
      ShardedRun run;
      run.backend = backend;
      run.ranks = ranks;
      run.options.schedule = name;
      run.options.passes = Passes::both;
      CAPTURE(name, ranks, backend, name_of(problem.dtype), problem.scores.softcap, problem.scores.sink_logits);
      CHECK(test::largest_error(run_sharded(inputs, run), exact) <= most);
      ++count;
    }
  }
  return count;
}

}  // namespace

TEST_CASE("caps and sinks, alone and together, agree with float64 in every schedule") {
  for (const int ranks : cases_to_run<int>({1, 2, 3, 4, 5, 6, 7, 8, 16})) {
    CHECK(check_scores(problem_with(1.5, false), ranks, 5e-6) >= 2);
    CHECK(check_scores(problem_with(0, true), ranks, 5e-6) >= 2);
    CHECK(check_scores(problem_with(1.5, true), ranks, 5e-6) >= 2);
  }
}

TEST_CASE("caps and sinks in every element type") {
  for (const DType dtype : {DType::fp64, DType::bf16, DType::fp16}) {
    Problem problem = problem_with(1.5, true);
    problem.dtype = dtype;
    const double most = dtype == DType::fp64 ? tolerance(problem, 16) : 3e-3;
    for (const int ranks : {1, 3, 4}) CHECK(check_scores(problem, ranks, most) >= 2);
  }
}

TEST_CASE("a row that sees no key has its sink alone") {
  Problem problem = problem_with(0, true);
  problem.mask = band_mask({{0, 20, 0, 20, 0, unbounded}, {30, 61, 10, 45, -5, 17}});
  const Inputs inputs(problem, scores_seed);
  for (const std::string& backend : backends_of_scores()) {
    ShardedRun run;
    run.backend = backend;
    run.ranks = 3;
    run.options.schedule = "zigzag-ring";
    run.options.passes = Passes::both;
    const ExactResult got = run_sharded(inputs, run);
    CHECK(test::largest_error(got, test::exact_of(inputs)) <= 5e-6);
    for (std::size_t head = 0; head < 6; ++head) {
      const auto logit = static_cast<float>(inputs.sink_logits()[head]);
      CHECK(got.lse[head * 61 + 25] == static_cast<double>(logit));
      CHECK(got.o[(25 * 6 + head) * 16] == 0);
    }
  }
}

TEST_CASE("gradients of keys that share a component are right where those of a row do not cancel") {
  for (const auto& [softcap, sinks] : {std::pair{0.0, true}, {40.0, false}, {40.0, true}}) {
    Problem problem = problem_with(softcap, sinks);
    problem.seq_q = problem.seq_kv = 256;
    problem.mask = causal_mask();
    Inputs inputs(problem, scores_seed);
    inputs.add(3, 0, 40);
    const ExactResult exact = test::exact_of(inputs);
    for (const std::string& backend : backends_of_scores()) {
      for (const char* schedule : {"zigzag-ring", "burst", "attention2d"}) {
        ShardedRun run;
        run.backend = backend;
        run.ranks = 4;
        run.options.schedule = schedule;
        run.options.passes = Passes::both;
        CAPTURE(backend, schedule, softcap, sinks);
        CHECK(test::largest_error(run_sharded(inputs, run), exact) <= 5e-6);
      }
    }
  }
}

TEST_CASE("a cap that scores do not come near changes nothing but rounding, and one that they do changes much") {
  const Inputs plain(problem_with(0, false), scores_seed);
  const ExactResult exact = test::exact_of(plain);
  ShardedRun run;
  run.options.passes = Passes::both;
  CHECK(test::largest_error(run_sharded(Inputs(problem_with(1e4, false), scores_seed), run), exact) <= 1e-5);
  CHECK(test::largest_error(run_sharded(Inputs(problem_with(0.5, false), scores_seed), run), exact) >= 0.1);
}

TEST_CASE("sink logits that are missing, or that nobody asked for, are refused") {
  for (const bool asked : {false, true}) {
    const Problem problem = problem_with(0, asked), other = problem_with(0, !asked);
    run_ranks(1, [&](Rank, Transport& transport) {
      const auto device = make_device("reference", {});
      Attention attention(problem, ScheduleRequest(), *device, transport);
      std::vector<float> q(2 * 61 * 6 * 24), o(2 * 61 * 6 * 16), lse(2 * 61 * 6), k(2 * 61 * 2 * 24),
          v(2 * 61 * 2 * 16), logits(6, 0.5f);
      Bindings bindings;
      bindings.q = dense_view(q.data(), 2, 61, 6, 24);
      bindings.k = dense_view(k.data(), 2, 61, 2, 24);
      bindings.v = dense_view(v.data(), 2, 61, 2, 16);
      bindings.o = dense_view(o.data(), 2, 61, 6, 16);
      bindings.lse = statistics_view(lse.data(), 2, 6, 61);
      const auto bind = [&](std::int64_t heads) {
        bindings.sink_logits = heads_view(reinterpret_cast<const std::byte*>(logits.data()), DType::fp32, heads);
      };
      if (!asked) {
        CHECK_NOTHROW(attention.forward(bindings));
        bind(6);
        CHECK_THROWS_WITH(attention.forward(bindings), contains_text("the problem has no sink logits"));
        return;
      }
      CHECK_THROWS_WITH(attention.forward(bindings), contains_text("sink_logits"));
      bind(5);
      CHECK_THROWS_WITH(attention.forward(bindings), contains_text("sink_logits is 1x1x5x1"));
      bind(6);
      CHECK_NOTHROW(attention.forward(bindings));
      logits[4] = NAN;
      CHECK_THROWS_WITH(attention.forward(bindings), contains_text("sink_logits has nan for head 4"));
    });
  }
}

TEST_CASE("a position bias and the largest scores agree with float64 in every schedule") {
  Problem problem = problem_with(0, false);
  problem.scores.max_logit = true;
  problem.alibi_slopes = standard_alibi_slopes(6);
  Problem all = problem_with(1.5, true);
  all.scores.max_logit = true;
  all.alibi_slopes = {0.3, -0.2, 0, 1, 0.01, 2};
  Problem more_keys = problem;
  more_keys.seq_q = 33;
  more_keys.mask = causal_mask();
  for (const int ranks : cases_to_run<int>({1, 2, 3, 4, 5, 7, 8, 16})) {
    CHECK(check_scores(problem, ranks, 5e-6) >= 2);
    CHECK(check_scores(all, ranks, 5e-6) >= 2);
    CHECK(check_scores(more_keys, ranks, 5e-6) >= 2);
  }
  all.dtype = DType::bf16;
  CHECK(check_scores(all, 3, 3e-3) >= 2);
  all.dtype = DType::fp64;
  CHECK(check_scores(all, 3, tolerance(all, 16)) >= 2);
}

TEST_CASE("dropout drops the same weights in every schedule, on every device and in both passes") {
  Problem problem = problem_with(0, false);
  problem.scores.dropout = 0.3;
  Problem all = problem_with(1.5, true);
  all.scores.dropout = 0.15;
  all.alibi_slopes = standard_alibi_slopes(6);
  Problem few = problem_with(0, false);
  few.seq_q = 3;
  few.mask = causal_mask();
  few.scores.dropout = 0.5;
  for (const int ranks : cases_to_run<int>({1, 2, 3, 4, 5, 6, 7, 8, 16})) {
    CHECK(check_scores(problem, ranks, 5e-6) >= 2);
    CHECK(check_scores(all, ranks, 5e-6) >= 2);
    CHECK(check_scores(few, ranks, 5e-6) >= 2);
  }
  problem.dtype = DType::bf16;
  CHECK(check_scores(problem, 3, 3e-3) >= 2);
}

TEST_CASE("another seed drops other weights, and none are dropped with probability 0") {
  Problem problem = problem_with(0, false);
  const Inputs plain(problem, scores_seed);
  const ExactResult exact = test::exact_of(plain);
  problem.scores.dropout = 0.1;
  const Inputs dropped(problem, scores_seed);
  ShardedRun run;
  run.options.passes = Passes::both;
  const ExactResult got = run_sharded(dropped, run);
  CHECK(test::largest_error(got, exact) >= 0.1);
  const ExactResult other = exact_attention(problem, dropped.q(), dropped.k(), dropped.v(), dropped.d_o(), 1, {},
                                            {.seed = Inputs::dropout_seed, .offset = Inputs::dropout_offset + 1});
  CHECK(test::largest_error(got, other) >= 0.1);
}

TEST_CASE("the usual slopes are those of the paper") {
  CHECK(standard_alibi_slopes(1) == std::vector<double>{1.0 / 256});
  CHECK(standard_alibi_slopes(8) ==
        std::vector<double>{1.0 / 2, 1.0 / 4, 1.0 / 8, 1.0 / 16, 1.0 / 32, 1.0 / 64, 1.0 / 128, 1.0 / 256});
  const std::vector<double> six = standard_alibi_slopes(6);
  const std::vector<double> expected = {1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256, 1.0 / 2, 1.0 / 8};
  REQUIRE(six.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) CHECK(six[i] == Approx(expected[i]));
}

TEST_CASE("trees agree with float64 in every schedule") {
  Problem problem = problem_with(0, true);
  const std::vector<TreeNode> nodes = {{17, -1}, {13, 0}, {5, 1}, {1, 0}, {14, 0}, {11, 1}};
  problem.mask = tree_mask(nodes);
  for (const int ranks : cases_to_run<int>({1, 3, 4, 8})) CHECK(check_scores(problem, ranks, 5e-6) >= 2);
}

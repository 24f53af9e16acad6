/// Gradients of keys that share a component, as a bias gives it to them: sums of dS times what is shared are far larger
/// than the gradients that they cancel in.

#include <algorithm>
#include <cmath>
#include <iostream>

#include "catch.hpp"
#include "distattn/error.hpp"
#include "distattn/registry.hpp"
#include "kernels/vector/cpu.hpp"
#include "tests/support/sharded.hpp"

using namespace distattn;
using test::Inputs;
using test::run_sharded;
using test::ShardedRun;

namespace {

constexpr std::uint64_t keys_seed = 20;

Problem problem_of(std::int64_t tokens) {
  Problem problem;
  problem.seq_q = problem.seq_kv = tokens;
  problem.heads = 2;
  problem.kv_heads = 1;
  problem.head_dim = problem.value_dim = 64;
  return problem;
}

Inputs with_bias(const Problem& problem) {
  Inputs inputs(problem, keys_seed);
  inputs.add(3, 1, 900);
  inputs.add(40, 0, -450);
  return inputs;
}

ExactResult exactly(const Inputs& inputs) {
  return exact_attention(inputs.problem(), inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1);
}

bool is_usable(const std::string& backend) {
  const auto all = list_backends();
  return std::any_of(all.begin(), all.end(), [&](const auto& info) { return info.name == backend && info.usable; });
}

/// Whether no kernels here take out of keys what they share, which a test then says.
bool is_skipped() {
  if (is_usable("cpu")) return false;
  WARN("skipped: backend kokkos is not usable here");
  return true;
}

/// Whether kernels for CPUs round weights before they multiply them.
bool rounds_weights(DType dtype) { return kernels::cpu_kernels().coefficients(dtype) != accumulator_of(dtype); }

/// Relative, of the elements from `first` on.
double error_of(const std::vector<double>& got, const std::vector<double>& exact, std::size_t first = 0) {
  double error = 0, norm = 0;
  for (std::size_t i = first; i < exact.size(); ++i) {
    error += (got[i] - exact[i]) * (got[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(error / norm);
}

ShardedRun run_of(const std::string& backend, const std::string& schedule, int ranks) {
  ShardedRun run;
  run.backend = backend;
  run.ranks = ranks;
  run.options.schedule = schedule;
  run.options.passes = Passes::both;
  return run;
}

/// Schedules that add up a row's dq on several ranks, with what merges parts on the way.
constexpr std::pair<const char*, int> partial_schedules[] = {
    {"burst", 4}, {"burst:zigzag", 4}, {"attention2d", 4}, {"balanced", 4}};

}  // namespace

TEST_CASE("gradients of keys that share a component are as good on many ranks as on one", "[again]") {
  Problem problem = problem_of(512);
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    problem.dtype = dtype;
    const Inputs inputs = with_bias(problem);
    const ExactResult exact = exactly(inputs);
    for (const char* backend : {"reference", "cpu"}) {
      if (!is_usable(backend)) continue;
      if (backend == std::string("cpu") && rounds_weights(dtype)) continue;  // a case of their own, below
      ShardedRun run = run_of(backend, "ring", 1);
      const ExactResult alone = run_sharded(inputs, run);
      const double best = error_of(alone.dq, exact.dq);
      // Tuned kernels keep Σ dS apart from dq, and know when it is 0 but for rounding.
      const bool keeps_sums = backend == std::string("cpu");
      CHECK(best <= (keeps_sums ? 1e-5 : 5e-5));
      struct Case {
        const char* name;
        int ranks;
      };
      for (const auto& [name, ranks] : {Case{"zigzag-ring", 16},
                                        {"striped-ring", 8},
                                        {"burst", 8},
                                        {"burst", 64},
                                        {"ring/burst", 16},
                                        {"attention2d", 16},
                                        {"attention2d", 64},
                                        {"ulysses", 2},
                                        {"usp:2", 8},
                                        {"balanced", 7},
                                        {"balanced-split", 8},
                                        {"allgather", 8},
                                        {"mesh:2x2x2:chunked", 8},
                                        {"zigzag-ring", 64}}) {
        run.options.schedule = name;
        run.ranks = ranks;
        CAPTURE(name_of(dtype), backend, name, ranks, best);
        CHECK(error_of(run_sharded(inputs, run).dq, exact.dq) <= (keeps_sums ? 1.5e-5 : 1.2 * best));
      }
    }
  }
}

// Outputs have the rounding of weights then, and so has Σ dS, which would be 0: that must not reach dq 900 times.
TEST_CASE("gradients of keys that share a component have no rounding of pairs in their sums") {
  try {
    if (!rounds_weights(DType::bf16)) {
      std::cout << "SKIPPED: the kernels here take no products of pairs\n";
      return;
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::environment) throw;
    std::cout << "SKIPPED: " << error.what() << '\n';
    return;
  }
  Problem problem = problem_of(512);
  problem.dtype = DType::bf16;
  const Inputs inputs = with_bias(problem);
  const ExactResult exact = exactly(inputs);
  // Where heads are exchanged, the owner of queries has computed none of their tiles and judges sums by delta alone.
  for (const auto& [name, ranks] : {std::pair{"ring", 1},
                                    {"zigzag-ring", 16},
                                    {"burst", 8},
                                    {"burst", 64},
                                    {"ring/burst", 16},
                                    {"attention2d", 16},
                                    {"balanced", 7},
                                    {"allgather", 8},
                                    {"ulysses", 2},
                                    {"usp:2", 8}}) {
    CAPTURE(name, ranks);
    CHECK(error_of(run_sharded(inputs, run_of("cpu", name, ranks)).dq, exact.dq) <= 3e-3);
  }
}

// Few keys share something by chance. What dq leaves out of them is needed, and small beside delta, which is of what
// values share.
TEST_CASE("gradients of values that share a component are right on ranks with few keys") {
  if (is_skipped()) return;
  Problem problem = problem_of(512);
  problem.dtype = DType::bf16;
  Inputs inputs(problem, keys_seed);
  inputs.add_to_values(100);
  const ExactResult exact = exactly(inputs);
  for (const auto& [name, ranks] : {std::pair{"ring", 1}, {"ring", 64}, {"zigzag-ring", 64}, {"usp:2", 64}}) {
    CAPTURE(name, ranks);
    CHECK(error_of(run_sharded(inputs, run_of("cpu", name, ranks)).dq, exact.dq) <= 3e-3);
  }
}

// A rank's one key is all that its keys share, and what it has of Σ dS is no rounding, however small scores make it.
TEST_CASE("gradients of ranks with a key or two are right with any scale") {
  if (is_skipped()) return;
  for (const double scale : {1e-2, 1e-5, 1e-8}) {
    Problem problem = problem_of(48);
    problem.scores.scale = scale;
    const Inputs inputs(problem, keys_seed);
    const ExactResult exact = exactly(inputs);
    for (const auto& [name, ranks] : {std::pair{"ring", 48}, {"zigzag-ring", 16}, {"burst", 24}, {"attention2d", 16}}) {
      CAPTURE(scale, name, ranks);
      CHECK(error_of(run_sharded(inputs, run_of("cpu", name, ranks)).dq, exact.dq) <= 2e-6);
    }
  }
}

TEST_CASE("partial gradients of keys that share a component are merged on their way between nodes") {
  if (is_skipped()) return;
  const Inputs inputs = with_bias(problem_of(512));
  const ExactResult exact = exactly(inputs);
  for (const char* name : {"burst", "attention2d", "balanced"}) {
    ShardedRun run = run_of("cpu", name, 8);
    run.options.node_size = 4;
    CAPTURE(name);
    CHECK(error_of(run_sharded(inputs, run).dq, exact.dq) <= 1.5e-5);
  }
}

TEST_CASE("keys of each head share something else") {
  if (is_skipped()) return;
  Problem problem = problem_of(256);
  problem.batch = 2;
  problem.heads = 4;
  problem.kv_heads = 2;
  Inputs inputs(problem, keys_seed);
  inputs.add(3, 1, 900, 0);
  inputs.add(40, 1, -700, 1);
  const ExactResult exact = exactly(inputs);
  for (const char* name : {"burst", "attention2d", "mesh:2x1x2:striped", "ulysses"}) {
    const int ranks = name == std::string("ulysses") ? 2 : 4;
    CAPTURE(name);
    CHECK(error_of(run_sharded(inputs, run_of("cpu", name, ranks)).dq, exact.dq) <= 2e-5);
  }
}

TEST_CASE("ranks with different devices compute one gradient of keys that share a component") {
  if (is_skipped()) return;
  const Inputs inputs = with_bias(problem_of(512));
  const ExactResult exact = exactly(inputs);
  for (const auto& [name, ranks] : partial_schedules) {
    for (const auto& [even, odd] : {std::pair{"cpu", "reference"}, {"reference", "cpu"}}) {
      ShardedRun run = run_of(even, name, ranks);
      run.odd_backend = odd;
      CAPTURE(name, even, odd);
      CHECK(error_of(run_sharded(inputs, run).dq, exact.dq) <= 6e-5);
    }
  }
}

TEST_CASE("what a key outside has of the weights is in gradients of keys that share a component") {
  if (is_skipped()) return;
  const Problem problem = problem_of(512);
  const Inputs inputs = with_bias(problem);
  const ExactResult exact = exactly(inputs);
  const ExactResult keys = exact_attention(problem, inputs.q(), inputs.k(), inputs.k(), inputs.d_o(), 1);
  const double outside = 0.25, inside = 1 - outside;
  // P' = inside P and delta' = inside delta: dS' = inside (dS + outside P delta), where Σ P k is the output for v = k.
  std::vector<double> expected = exact.dq;
  const auto* const d_o = reinterpret_cast<const float*>(inputs.d_o().data);
  const auto dim = static_cast<std::size_t>(problem.head_dim);
  for (std::size_t row = 0; row < expected.size(); row += dim) {
    double delta = 0;
    for (std::size_t x = row; x < row + dim; ++x) delta += exact.o[x] * static_cast<double>(d_o[x]);
    for (std::size_t x = row; x < row + dim; ++x) {
      expected[x] = inside * (exact.dq[x] + outside * delta * problem.softmax_scale() * keys.o[x]);
    }
  }
  CHECK(error_of(exact.dq, expected) > 0.9);  // c Σ dS is nearly all of it
  for (const auto& [name, ranks] : {std::pair{"ring", 1}, {"zigzag-ring", 4}, {"burst", 4}, {"attention2d", 4}}) {
    for (const DType wire : {DType::fp32, DType::bf16}) {
      Problem sent = problem;
      sent.wire = wire;
      ShardedRun run = run_of("cpu", name, ranks);
      run.outside = outside;
      CAPTURE(name, name_of(wire));
      CHECK(error_of(run_sharded(with_bias(sent), run).dq, expected) <= (wire == DType::fp32 ? 2e-5 : 1e-2));
    }
  }
}

TEST_CASE("what the keys of one document share does not round in the gradients of another") {
  if (is_skipped()) return;
  Problem problem = problem_of(512);
  problem.mask.documents = {0, 256, 512};
  Inputs inputs(problem, keys_seed);
  inputs.add_to_first(256, 3, 900);
  inputs.add_to_first(256, 40, -450);
  const ExactResult exact = exactly(inputs);
  for (const auto& [name, ranks] :
       {std::pair{"ring", 1}, {"zigzag-ring", 4}, {"burst:zigzag", 4}, {"burst:zigzag", 8}, {"mesh:1x2x2:zigzag", 4}}) {
    CAPTURE(name, ranks);
    const ExactResult got = run_sharded(inputs, run_of("cpu", name, ranks));
    CHECK(error_of(got.dq, exact.dq, exact.dq.size() / 2) <= 1e-6);
  }
}

TEST_CASE("scores of a few keys that lack what the others share are as exact as theirs") {
  if (is_skipped()) return;
  Problem problem = problem_of(512);
  problem.mask.causal = true;
  Inputs inputs = with_bias(problem);
  constexpr std::int64_t others = 5;  // between samples
  inputs.add_to_first(others, 3, -900);
  inputs.add_to_first(others, 40, 450);
  const ExactResult exact = exactly(inputs);
  for (const auto& [name, ranks] : {std::pair{"ring", 1}, std::pair{"burst", 4}}) {
    const ExactResult found = run_sharded(inputs, run_of("cpu", name, ranks));
    double worst = 0;
    for (std::size_t row = 0; row < exact.lse.size(); ++row) {
      worst = std::max(worst, std::abs(found.lse[row] - exact.lse[row]) / (1 + std::abs(exact.lse[row])));
    }
    CAPTURE(name, ranks);
    CHECK(worst <= 3e-6);
    CHECK(error_of(found.dq, exact.dq) <= 5e-5);
  }
}

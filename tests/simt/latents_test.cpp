/// Keys that hold their values, and heads as wide as latents: what kernels in parts compute, and how dK takes dV in.

#include "catch.hpp"
#include "simt/attention_run.hpp"
#include "support/sanitized.hpp"

namespace {

using distattn::Band;
using distattn::kernels::Bf16;
using distattn::kernels::Fp16;
using simt::AttentionCase;
using simt::check;

AttentionCase case_of(const char* name, int head_dim, int value_dim, bool shared_kv) {
  return {.name = name,
          .queries = {{101, 33}, {7, 3, 2}},
          .keys = {{0, 67}, {67, 41}},
          .bands = {Band{.lo = 0, .hi = 90}},
          .head_dim = head_dim,
          .value_dim = value_dim,
          .heads = {.q_count = 2, .kv_count = 1, .per_kv = 2},
          .shared_kv = shared_kv};
}

AttentionCase carried(AttentionCase c) {
  c.carry = true;
  c.batch = 2;
  return c;
}

/// Of one sequence and few tokens: what is tested is columns.
AttentionCase with_every_score(AttentionCase c) {
  c.softcap = 2;
  c.slopes = {0.3, -0.2};
  c.dropout = {.probability = 0.25, .seed = simt::dropout_seed, .offset = simt::dropout_offset, .heads = 2};
  c.max_logit = true;
  return c;
}

}  // namespace

TEST_CASE("keys that hold their values", "[simt][latents][again]") {
  for (const auto& [head_dim, value_dim] : cases_to_run<std::pair<int, int>>({{40, 24}, {128, 128}, {256, 200}})) {
    const AttentionCase c = case_of("shared", head_dim, value_dim, true);
    check<Bf16>(c, 61);
    check<float>(carried(c), 62);
    check<Bf16>(carried(with_every_score(c)), 63);
  }
  check<Fp16>(carried(case_of("shared", 72, 8, true)), 64);
  check<float>(case_of("shared", 40, 24, true), 70);  // dV meets the dK that is there, not what was carried
}

TEST_CASE("latents of MLA", "[simt][latents]") { check<Bf16>(case_of("latents", 576, 512, true), 65); }

TEST_CASE("latents of MLA with all that scores may have, and widths between", "[simt][latents][again]") {
  check<float>(carried(with_every_score(case_of("latents", 576, 512, true))), 66);
  check<Fp16>(carried(with_every_score(case_of("wide", 328, 264, false))), 67);
  check<Bf16>(case_of("wide keys", 264, 8, false), 68);
  check<Bf16>(carried(case_of("wide values", 8, 576, false)), 69);
}

TEST_CASE("no kernel of Hopper takes values in keys", "[simt][latents]") {
  using namespace distattn::kernels::cuda;
  for (const TilePass pass : {TilePass::forward, TilePass::query_gradient, TilePass::key_gradients}) {
    CHECK(simt::kernel_for<Bf16>(pass, case_of("shared", 64, 64, true), 90).architecture == 80);
    CHECK(simt::kernel_for<Bf16>(pass, case_of("latents", 576, 512, false), 90).architecture == 80);
  }
  for (const AttendKernel& kernel : attend_kernels()) {
    CHECK(kernel.features.has(distattn::Feature::shared_kv) == (kernel.architecture == 80));
  }
}

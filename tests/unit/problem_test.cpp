#include "distattn/problem.hpp"

#include <limits>

#include "catch.hpp"
#include "distattn/error.hpp"

using namespace distattn;

namespace {

Problem sound() {
  return {.batch = 2, .seq_q = 16, .seq_kv = 32, .heads = 12, .kv_heads = 4, .head_dim = 192, .value_dim = 128};
}

template <class Change>
void require_refused_problem(Change change, const std::string& word) {
  Problem problem = sound();
  change(problem);
  REQUIRE_THROWS_WITH(check(problem), contains_text(word));
}

}  // namespace

TEST_CASE("derived figures of a problem") {
  Problem problem = sound();
  CHECK_NOTHROW(check(problem));
  CHECK(problem.heads_per_kv() == 3);
  CHECK(problem.first_query() == 16);
  CHECK(problem.softmax_scale() == Approx(1 / std::sqrt(192.0)));
  problem.scores.scale = 0.5;
  CHECK(problem.softmax_scale() == 0.5);
  CHECK(problem.wire_type() == DType::fp32);
  problem.dtype = DType::fp64;
  problem.wire = DType::bf16;
  CHECK(problem.wire_type() == DType::fp64);
}

TEST_CASE("a key and its value have as many elements as their buffers") {
  Problem problem = sound();
  CHECK(problem.key_value_dim() == 320);
  problem.shared_kv = true;
  CHECK(problem.key_value_dim() == 192);
  problem.head_dim = 576, problem.value_dim = 512;
  CHECK_NOTHROW(check(problem));
  problem.value_dim = 576;
  CHECK_NOTHROW(check(problem));
}

TEST_CASE("shapes that nobody computes are refused") {
  require_refused_problem([](Problem& p) { p.batch = 0; }, "batch is 0");
  require_refused_problem([](Problem& p) { p.seq_q = 0; }, "seq is 0");
  require_refused_problem([](Problem& p) { p.seq_kv = -1; }, "seq-kv is -1");
  require_refused_problem([](Problem& p) { p.heads = 0; }, "heads is 0");
  require_refused_problem([](Problem& p) { p.kv_heads = 0; }, "kv-heads is 0");
  require_refused_problem([](Problem& p) { p.kv_heads = 5; }, "12 heads on 5 kv-heads");
  require_refused_problem([](Problem& p) { p.head_dim = 0; }, "pad it to 8 with zeros");
  require_refused_problem(
      [](Problem& p) { p.head_dim = 100; },
      "pad it to 104 with zeros and give scale 0.1 (1/sqrt(100): the default follows the padded size)");
  require_refused_problem([](Problem& p) { p.value_dim = 100; }, "pad it to 104 with zeros");
  require_refused_problem([](Problem& p) { p.value_dim = 584; }, "choose 576 or less");
  require_refused_problem([](Problem& p) { p.shared_kv = true, p.value_dim = 200; }, "choose value-dim 192 or less");
  require_refused_problem([](Problem& p) { p.wire = DType::fp16; }, "wire type fp16");
  require_refused_problem([](Problem& p) { p.scores.scale = std::numeric_limits<double>::infinity(); }, "scale");
  require_refused_problem([](Problem& p) { p.scores.scale = -1e39; }, "scale is -1e+39 (scores are computed in fp32");
  require_refused_problem([](Problem& p) { p.scores.scale = 1e-39; }, "scale is 1e-39 (scores are computed in fp32");
  require_refused_problem([](Problem& p) { p.scores.softcap = -1; }, "softcap is -1");
  require_refused_problem([](Problem& p) { p.scores.softcap = 1e31; }, "softcap is 1e+31");
  require_refused_problem([](Problem& p) { p.scores.softcap = 1e-31; }, "choose 1e-30 to 1e30");
  require_refused_problem([](Problem& p) { p.scores.softcap = std::nan(""); }, "softcap is nan");
  for (const double dropout : {1.0, -0.1, 2.0, std::nan("")}) {
    require_refused_problem([=](Problem& p) { p.scores.dropout = dropout; },
                            "(the probability that a weight is dropped)");
  }
  require_refused_problem([](Problem& p) { p.alibi_slopes.assign(5, 0.5); },
                          "5 slopes of a position bias for 12 heads");
  require_refused_problem([](Problem& p) { p.alibi_slopes.assign(12, std::nan("")); }, "the slope of head 0 is nan");
  require_refused_problem([](Problem& p) { p.alibi_slopes = standard_alibi_slopes(12), p.alibi_slopes[3] = -1e21; },
                          "the slope of head 3 is -1e+21");
  Problem steep;
  steep.seq_q = steep.seq_kv = 4;
  steep.head_dim = steep.value_dim = 8;
  steep.alibi_slopes.assign(1, -1e20F);  // as fp32 rounds it: a bit more
  CHECK_NOTHROW(check(steep));
  require_refused_problem([](Problem& p) { p.batch = std::int64_t{1} << 55; }, "overflow");
  require_refused_problem([](Problem& p) { p.batch = 1 << 10, p.heads = 1 << 30, p.seq_kv = 1 << 24; }, "overflow");
  require_refused_problem([](Problem& p) { p.seq_q = p.seq_kv = std::int64_t{1} << 32; },
                          "a sequence has 2147483647 at most");
  require_refused_problem([](Problem& p) { p.mask.documents = {0, 5}; }, "cu-seqlens");
}

TEST_CASE("float64 holds scales that fp32 does not") {
  Problem problem = sound();
  problem.scores.scale = 1e39;
  problem.dtype = DType::fp64;
  CHECK_NOTHROW(check(problem));
  problem.dtype = DType::bf16;
  problem.scores.scale = 1e38;
  CHECK_NOTHROW(check(problem));
}

TEST_CASE("looking ahead is a matter of pairs, not of options") {
  Problem problem = sound();
  CHECK_FALSE(sees_future(problem));
  problem.mask = full_mask();
  CHECK(sees_future(problem));
  problem.mask.right = 0;
  CHECK_FALSE(sees_future(problem));
  problem.mask = prefix_mask(32, 16);
  CHECK_FALSE(sees_future(problem));  // the queries are positions 16 … 31
  problem.mask = prefix_mask(32, 18);
  CHECK(sees_future(problem));
}

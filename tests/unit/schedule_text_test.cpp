#include "catch.hpp"
#include "distattn/lower.hpp"

using namespace distattn;

namespace {

std::string text_of(std::string_view name, int ranks, bool details, Pass pass = Pass::forward,
                    Mask mask = causal_mask(), std::size_t columns = usual_table_columns) {
  const Problem problem{.seq_q = 16 * ranks,
                        .seq_kv = 16 * ranks,
                        .heads = 16,
                        .kv_heads = 16,
                        .head_dim = 8,
                        .value_dim = 8,
                        .wire = DType::bf16,
                        .mask = std::move(mask)};
  const Recipe recipe = std::get<Recipe>(resolve_schedule(name, problem, ranks));
  const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
  return to_text(lower(Lowering(recipe.name, tiles, recipe.table(tiles, 0), pass, recipe.mode)), details, columns);
}

bool has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("balanced reads as Figure 1 of DistFlashAttn") {
  CHECK(text_of("balanced", 4, false) ==
        "balanced forward, overlapped: 4 ranks on block layout, 64 queries and 64 keys\n"
        "\n"
        "rank  step 1  step 2  step 3\n"
        "0     q0·k0   q3·k0   -\n"
        "1     q1·k1   q1·k0   -\n"
        "2     q2·k2   q2·k1   q2·k0\n"
        "3     q3·k3   q3·k2   q3·k1\n");
}

TEST_CASE("query segments with the same keys share a product, head groups are named once") {
  const std::string zigzag = text_of("zigzag-ring", 4, false);
  CHECK(has(zigzag, "0     q0·k0 q7·k0,7  q7·k3-4  q7·k2,5  q7·k1,6"));
  CHECK(has(zigzag, "3     q3·k3 q4·k3-4  q3-4·k2  q3-4·k1  q3-4·k0"));
  CHECK(has(text_of("ulysses", 3, false), "2     g2:q0·k0 q1·k0-1 q2·k0-2"));
  CHECK(has(text_of("ulysses", 8, false), "5     36 tiles"));
  CHECK(has(text_of("ulysses", 8, false, Pass::forward, full_mask()), "5     g5:q0-7·k0-7"));
}

TEST_CASE("a wide table continues in panels") {
  const std::string ring = text_of("ring", 16, false);
  CHECK(has(ring, "rank  step 14  step 15  step 16"));
  CHECK(has(ring, "15    q15·k2   q15·k1   q15·k0"));
  std::size_t longest = 0;
  for (std::size_t begin = 0, end; (end = ring.find('\n', begin)) != std::string::npos; begin = end + 1)
    longest = std::max(longest, end - begin);
  CHECK(longest <= 120 + 16);  // bytes: the dots of sixteen cells are two each
  CHECK(has(text_of("ring", 16, false, Pass::forward, causal_mask(), 31), "rank  step 4   step 5   step 6"));
}

TEST_CASE("details list segments, buffers, steps and what they wait for") {
  const std::string text = text_of("ring", 2, true, Pass::backward);
  CHECK(has(text, "q1: 16 tokens from 16, rank 1"));
  CHECK(has(text, "    send kv(g0, 0) to rank 1, 16384 bytes"));
  CHECK(has(text, "    attend backward dq(g0, 1)<-1 += q(g0, 1) × kv(g0, 0) (dkv(g0, 0)<-1 =)"));
  CHECK(has(text, "    convert dkv(g0, 0)<-1 to dkv(g0, 0)<-1 as bf16"));
  CHECK(has(text, "    receive dkv(g0, 0)<-1 as bf16 from rank 1, 8192 bytes"));
  CHECK(has(text, "    add dkv(g0, 0)<-1 as bf16 to dkv(g0, 0)<-0"));
  CHECK(text.find("  #2 step 2 compute, after #0\n") != std::string::npos);
  CHECK(has(text_of("striped-ring", 2, true), "k1: 16 tokens from 1 every 2, rank 1"));
  CHECK(text_of("burst", 2, true).find("    merge o(g0, 1)<-0 as bf16 into o(g0, 1)<-1\n") != std::string::npos);
}

TEST_CASE("a rank that computes nothing has its row") {
  CHECK(has(text_of("ring", 2, false, Pass::forward, band_mask({{16, 32, 16, 32, 0, unbounded}})), "0     -"));
  CHECK(has(text_of("ring", 2, false, Pass::forward, band_mask({})), "no tile is visible"));
}

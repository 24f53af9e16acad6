#include "distattn/schedule.hpp"

#include "catch.hpp"

using namespace distattn;

namespace {

Outline outline_of(Pass pass, DType dtype = DType::bf16) {
  const Problem problem{
      .batch = 2, .seq_q = 10, .seq_kv = 20, .heads = 6, .kv_heads = 2, .head_dim = 24, .value_dim = 8, .dtype = dtype};
  return {"ring", shard(problem, 4, {}, 2), pass, Mode::overlapped, 2};
}

}  // namespace

TEST_CASE("parts of a forward query and its result") {
  const Outline outline = outline_of(Pass::forward);
  const Value query{ValueKind::query, 0, SegmentId{1}};  // 3 tokens, 3 heads
  const auto q = parts_of(outline, query, DType::bf16);
  REQUIRE(q.size() == 1);
  CHECK(q[0].heads == 3);
  CHECK(q[0].tokens == 3);
  CHECK(q[0].dim == 24);
  CHECK(q[0].bytes == 2 * 3 * 3 * 24 * 2);

  const Value output{ValueKind::output, 0, SegmentId{1}, 3};
  const auto o = parts_of(outline, output, DType::bf16);
  REQUIRE(o.size() == 2);
  CHECK(o[0].bytes == 2 * 3 * 3 * 8 * 2);
  CHECK(o[1].offset == 320);  // 288 bytes, rounded up to 64
  CHECK(o[1].dim == 1);
  CHECK(o[1].dtype == DType::fp32);
  CHECK(o[1].bytes == 2 * 3 * 3 * 4);
  CHECK(message_bytes(outline, output, DType::bf16) == 288 + 72);

  const auto precise = parts_of(outline, output, DType::fp32);
  REQUIRE(precise.size() == 3);
  CHECK(precise[2].offset == 576 + 128);  // 72 bytes, rounded up to 128
  CHECK(precise[2].dtype == DType::fp16);
  CHECK(precise[2].bytes == 2 * 3 * 3 * 2);
  CHECK(message_bytes(outline, output, DType::fp32) == 576 + 72 + 36);
}

TEST_CASE("parts of the backward pass") {
  const Outline outline = outline_of(Pass::backward);
  const auto query = parts_of(outline, {ValueKind::query, 1, SegmentId{1}}, DType::bf16);
  REQUIRE(query.size() == 6);
  CHECK(query[1].dim == 8);
  CHECK(query[2].dtype == DType::fp32);
  CHECK(query[3].dim == 1);
  CHECK(query[4].heads == 1);
  CHECK(query[4].tokens == 1);
  CHECK(query[4].dim == 24);
  CHECK(query[4].dtype == DType::fp32);
  CHECK(query[4].bytes == 2 * 24 * 4);
  CHECK(query[5].dim == 1);
  CHECK(query[5].dtype == DType::fp16);
  const auto kv = parts_of(outline, {ValueKind::key_value, 1, SegmentId{1}}, DType::bf16);
  REQUIRE(kv.size() == 2);
  CHECK(kv[0].heads == 1);
  CHECK(kv[0].tokens == 5);
  CHECK(kv[1].dim == 8);
  const auto dkv = parts_of(outline, {ValueKind::dkey_value, 1, SegmentId{1}}, DType::fp32);
  CHECK(dkv[0].bytes == 2 * 5 * 24 * 4);
  CHECK(dkv[1].offset == dkv[0].bytes);  // 960: already a multiple of 64
}

TEST_CASE("queries whose gradients are rounded on the wire have no low part of statistics") {
  const Problem problem{
      .seq_q = 8, .seq_kv = 8, .head_dim = 8, .value_dim = 8, .dtype = DType::fp32, .wire = DType::bf16};
  const Outline outline{"burst", shard(problem, 2, {}), Pass::backward, Mode::overlapped, 0};
  const auto query = parts_of(outline, {ValueKind::query, 0, SegmentId{0}}, DType::fp32);
  REQUIRE(query.size() == 5);
  CHECK(query[4].dtype == DType::fp32);
  CHECK(query[4].bytes == 8 * 4);
}

TEST_CASE("sums of gradients of scores go with dq, what they round in proportion to stays with its owner") {
  const Outline outline = outline_of(Pass::backward);
  const Value at_owner{ValueKind::dquery, 0, SegmentId{1}, 1}, elsewhere{ValueKind::dquery, 0, SegmentId{1}, 3};
  const auto kept = parts_of(outline, at_owner, DType::fp32);
  REQUIRE(kept.size() == 3);
  CHECK(kept[1].dim == 1);
  CHECK(kept[1].bytes == 2 * 3 * 3 * 4);
  CHECK(kept[2].bytes == kept[1].bytes);
  const auto sent = parts_of(outline, elsewhere, DType::bf16);
  REQUIRE(sent.size() == 2);
  CHECK(sent[1].dtype == DType::bf16);
  CHECK(sent[1].bytes == 2 * 3 * 3 * 2);
}

TEST_CASE("the backward pass of fp64 has no sums") {
  const Outline outline = outline_of(Pass::backward, DType::fp64);
  CHECK(parts_of(outline, {ValueKind::dquery, 0, SegmentId{1}, 1}, DType::fp64).size() == 1);
}

TEST_CASE("statistics in fp64 have no low part") {
  CHECK(parts_of(outline_of(Pass::forward, DType::fp64), {ValueKind::output, 0, SegmentId{1}, 3}, DType::fp64).size() ==
        2);
  CHECK(parts_of(outline_of(Pass::backward, DType::fp64), {ValueKind::query, 0, SegmentId{1}}, DType::fp64).size() ==
        4);
}

TEST_CASE("precision adds less than a hundredth to what travels of shards of 512 tokens, from head dimension 64 on") {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const int dim : {64, 128}) {
      const Problem problem{
          .seq_q = 1024, .seq_kv = 1024, .head_dim = dim, .value_dim = dim, .dtype = dtype, .wire = dtype};
      const Sharding sharding = shard(problem, 2, {});
      const Outline forward{"burst", sharding, Pass::forward, Mode::overlapped, 0};
      const Outline backward{"burst", sharding, Pass::backward, Mode::overlapped, 0};
      const auto bytes = [&](const Outline& outline, ValueKind kind) {
        return static_cast<double>(message_bytes(outline, {kind, 0, SegmentId{0}, is_input(kind) ? -1 : 1}, dtype));
      };
      const auto row = static_cast<double>(dim * size_of(dtype));
      const double rows = 512, statistic = 4;
      CHECK(bytes(forward, ValueKind::output) <= 1.01 * rows * (row + statistic));
      const double query = bytes(backward, ValueKind::query), dquery = bytes(backward, ValueKind::dquery);
      CHECK(dquery - rows * row <= 0.01 * rows * (3 * row + 2 * statistic));
      CHECK(query + dquery <= 1.01 * rows * (3 * row + 2 * statistic));
    }
  }
}

TEST_CASE("an empty segment has empty parts") {
  const Problem problem{.seq_q = 1, .seq_kv = 1, .head_dim = 8, .value_dim = 8};
  const Outline outline{"ring", shard(problem, 2, {}), Pass::forward, Mode::overlapped, 0};
  CHECK(message_bytes(outline, {ValueKind::query, 0, SegmentId{0}}, DType::fp32) == 0);
  const Outline backward{"ring", shard(problem, 2, {}), Pass::backward, Mode::overlapped, 0};
  CHECK(message_bytes(backward, {ValueKind::query, 0, SegmentId{0}}, DType::fp32) == 0);
}

TEST_CASE("element types, owners and nodes") {
  const Outline outline = outline_of(Pass::forward);
  CHECK(dtype_of(outline, ValueKind::query) == DType::bf16);
  CHECK(dtype_of(outline, ValueKind::output) == DType::fp32);
  CHECK(dtype_of(outline_of(Pass::forward, DType::fp64), ValueKind::output) == DType::fp64);
  CHECK(owner_of(outline, {ValueKind::key_value, 0, SegmentId{2}}) == 2);
  CHECK(is_far(outline, 1, 2));
  CHECK_FALSE(is_far(outline, 2, 3));
  Outline one_node = outline;
  one_node.node_size = 0;
  CHECK_FALSE(is_far(one_node, 0, 3));
}

TEST_CASE("values have short names") {
  CHECK(to_string(Value{ValueKind::key_value, 0, SegmentId{5}}) == "kv(g0, 5)");
  CHECK(to_string(Value{ValueKind::output, 0, SegmentId{3}, 2}) == "o(g0, 3)<-2");
}

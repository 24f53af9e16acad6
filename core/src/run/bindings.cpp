#include "core/src/run/bindings.hpp"

#include <array>

#include <fmt/core.h>

namespace distattn {
namespace {

using Shape = std::array<std::int64_t, 4>;

std::string text(const Shape& shape) { return fmt::format("{}x{}x{}x{}", shape[0], shape[1], shape[2], shape[3]); }

/// What the tensors of one rank have to be.
struct Expectation {
  Rank rank;
  const Device& device;

  void operator()(const char* name, const ConstTensorView& tensor, const Shape& shard) const {
    const bool empty = shard[1] == 0;
    if (tensor.data == nullptr && !empty) {
      refuse(fmt::format("rank {} was given no {} (this pass needs its shard of {}) bind it", rank, name, text(shard)));
    }
    if (tensor.shape != shard && !(empty && tensor.data == nullptr)) {
      refuse(
          fmt::format("rank {}'s {} is {} (its shard is {}: batch x tokens x heads x dim) bind the tokens that the "
                      "layout gives to this rank",
                      rank, name, text(tensor.shape), text(shard)));
    }
    if (!empty && !device.takes(tensor.space)) {
      refuse(fmt::format("rank {}'s {} lies {} (backend {} does not reach it) copy it, or choose another backend", rank,
                         name, tensor.space == MemorySpace::cuda ? "on a GPU" : "in host memory", device.name()));
    }
  }
};

}  // namespace

void check(const Bindings& bindings, const Outline& outline, Rank rank, const Device& device) {
  const Expectation expect{rank, device};
  const Problem& problem = outline.sharding.problem;
  const std::int64_t queries = owned_tokens(outline.sharding.queries, rank);
  const std::int64_t keys = owned_tokens(outline.sharding.keys, rank);
  const Shape q{problem.batch, queries, problem.heads, problem.head_dim};
  const Shape o{problem.batch, queries, problem.heads, problem.value_dim};
  const Shape lse{problem.batch, queries, problem.heads, 1};
  const Shape k{problem.batch, keys, problem.kv_heads, problem.head_dim};
  const Shape v{problem.batch, keys, problem.kv_heads, problem.value_dim};

  expect("q", bindings.q, q);
  expect("k", bindings.k, k);
  expect("v", bindings.v, v);
  expect("o", bindings.o, o);
  expect("lse", bindings.lse, lse);
  if (outline.pass == Pass::forward) return;
  expect("do", bindings.d_o, o);
  expect("dq", bindings.dq, q);
  expect("dk", bindings.dk, k);
  expect("dv", bindings.dv, v);
}

}  // namespace distattn

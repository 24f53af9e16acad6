#include "core/src/run/bindings.hpp"

#include <array>
#include <cmath>
#include <cstdint>

#include <fmt/core.h>

#include "core/src/run/tensor_check.hpp"
#include "distattn/convert.hpp"

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
      refuse(
          fmt::format("rank {} was given no {} (this pass needs its shard of {}): bind it", rank, name, text(shard)));
    }
    if (tensor.shape != shard && !(empty && tensor.data == nullptr)) {
      refuse(
          fmt::format("rank {}'s {} is {} (its shard is {}: batch x tokens x heads x dim): bind the tokens that the "
                      "layout gives to this rank",
                      rank, name, text(tensor.shape), text(shard)));
    }
    if (reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(tensor.dtype) != 0) {
      refuse(
          fmt::format("rank {}'s {} begins between two boundaries of its {} elements (kernels read whole ones): align "
                      "it",
                      rank, name, name_of(tensor.dtype)));
    }
    if (!empty && !device.takes(tensor.space)) {
      refuse(fmt::format("rank {}'s {} lies {} (backend {} does not reach it): copy it, or choose another backend",
                         rank, name, tensor.space == MemorySpace::host ? "in host memory" : "on a GPU", device.name()));
    }
    check_strides(name, tensor, shard, false);
  }

  /// A tensor that is written: no two of its elements may lie in one place.
  void operator()(const char* name, const TensorView& tensor, const Shape& shard) const {
    (*this)(name, ConstTensorView(tensor), shard);
    check_strides(name, tensor, shard, true);
  }

  void check_strides(const char* name, const ConstTensorView& tensor, const Shape& shard, bool is_result) const {
    const std::string why = why_not_strides(tensor, is_result);
    if (!why.empty()) refuse(fmt::format("rank {}'s {} of {} {}", rank, name, text(shard), why));
  }

  void check_apart(std::initializer_list<NamedTensor> results) const {
    const std::string why = why_not_apart(results);
    if (!why.empty()) refuse(fmt::format("rank {}'s {}", rank, why));
  }
};

/// Logits that lie on the host are numbers: a NaN would spread over the whole head.
void check_values(const ConstTensorView& logits, Rank rank) {
  if (logits.space != MemorySpace::host) return;
  for (std::int64_t head = 0; head < logits.heads(); ++head) {
    double value = 0;
    convert(logits.row(0, 0, head), logits.dtype, reinterpret_cast<std::byte*>(&value), DType::fp64, 1);
    if (std::isfinite(value)) continue;
    refuse(fmt::format("rank {}'s sink_logits has {} for head {} (a logit is a finite number): bind numbers", rank,
                       value, head));
  }
}

void check_sinks(const Bindings& bindings, const Outline& outline, const Expectation& expect) {
  const Problem& problem = outline.sharding.problem;
  const bool given = bindings.sink_logits.data != nullptr, written = bindings.dsink_logits.data != nullptr;
  if (!problem.scores.sink_logits) {
    if (given || written)
      refuse(
          fmt::format("rank {} was given {} (the problem has no sink logits): leave it out, or set sink_logits in "
                      "the problem",
                      expect.rank, given ? "sink_logits" : "dsink_logits"));
    return;
  }
  const Shape heads{1, 1, problem.heads, 1};
  expect("sink_logits", bindings.sink_logits, heads);
  check_values(bindings.sink_logits, expect.rank);
  if (outline.pass == Pass::backward) expect("dsink_logits", bindings.dsink_logits, heads);
}

void check_max_logit(const Bindings& bindings, const Outline& outline, const Expectation& expect) {
  const Problem& problem = outline.sharding.problem;
  if (problem.scores.max_logit) {
    if (outline.pass == Pass::forward) expect("max_logit", bindings.max_logit, {problem.batch, 1, problem.heads, 1});
  } else if (bindings.max_logit.data != nullptr) {
    refuse(
        fmt::format("rank {} was given max_logit (the problem does not ask for it): leave it out, or set max_logit in "
                    "the problem",
                    expect.rank));
  }
}

/// Values that lie in keys have no tensor of their own, nor have their gradients.
void check_values_lie_in_keys(const Bindings& bindings, Rank rank) {
  const bool given = bindings.v.data != nullptr;
  if (!given && bindings.dv.data == nullptr) return;
  refuse(
      fmt::format("rank {} was given {} (the problem has shared_kv: values lie in k, their gradients in dk): leave it "
                  "out, or take shared_kv out of the problem",
                  rank, given ? "v" : "dv"));
}

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

  if (bindings.lse.data != nullptr && size_of(bindings.lse.dtype) < size_of(DType::fp32)) {
    refuse(fmt::format("rank {}'s lse is {} (weights would be off by as much as it rounds): give one in fp32", rank,
                       name_of(bindings.lse.dtype)));
  }
  const bool has_low = bindings.lse_low.data != nullptr;
  if (has_low && !problem.has_low_lse()) {
    refuse(fmt::format("rank {} was given lse_low (an LSE in fp64 has no low part): leave it out", rank));
  }

  check_sinks(bindings, outline, expect);
  check_max_logit(bindings, outline, expect);
  expect("q", bindings.q, q);
  expect("k", bindings.k, k);
  if (problem.shared_kv)
    check_values_lie_in_keys(bindings, rank);
  else
    expect("v", bindings.v, v);
  if (outline.pass == Pass::forward) {
    expect("o", bindings.o, o);
    expect("lse", bindings.lse, lse);
    if (has_low) expect("lse_low", bindings.lse_low, lse);
    expect.check_apart(
        {{"o", bindings.o}, {"lse", bindings.lse}, {"lse_low", bindings.lse_low}, {"max_logit", bindings.max_logit}});
    return;
  }
  expect("o", ConstTensorView(bindings.o), o);
  expect("lse", ConstTensorView(bindings.lse), lse);
  if (has_low) expect("lse_low", ConstTensorView(bindings.lse_low), lse);
  expect("do", bindings.d_o, o);
  expect("dq", bindings.dq, q);
  expect("dk", bindings.dk, k);
  if (!problem.shared_kv) expect("dv", bindings.dv, v);
  expect.check_apart(
      {{"dq", bindings.dq}, {"dk", bindings.dk}, {"dv", bindings.dv}, {"dsink_logits", bindings.dsink_logits}});
}

bool lie_in(MemorySpace space, const Bindings& bindings) {
  const auto lies = [&](const ConstTensorView& tensor) { return tensor.data == nullptr || tensor.space == space; };
  return lies(bindings.q) && lies(bindings.k) && lies(bindings.v) && lies(bindings.d_o) && lies(bindings.o) &&
         lies(bindings.lse) && lies(bindings.lse_low) && lies(bindings.dq) && lies(bindings.dk) && lies(bindings.dv) &&
         lies(bindings.sink_logits) && lies(bindings.dsink_logits) && lies(bindings.max_logit);
}

}  // namespace distattn

#pragma once
/// An attention to judge, with inputs and results that a test may change.

#include <random>
#include <utility>
#include <vector>

#include "cli/tools/judge.hpp"

namespace distattn::test {

/// An attention with inputs that a test may change, and what a perfect device would return for it.
struct JudgedCase {
  explicit JudgedCase(Mask mask, std::int64_t tokens = 384, int heads = 4, int kv_heads = 2) {
    problem = {.seq_q = tokens,
               .seq_kv = tokens,
               .heads = heads,
               .kv_heads = kv_heads,
               .head_dim = 16,
               .value_dim = 8,
               .mask = std::move(mask)};
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, int count, int dim) {
      values.resize(static_cast<std::size_t>(tokens * count * dim));
      for (float& value : values) value = normal(random);
    };
    fill(q, heads, problem.head_dim);
    fill(k, kv_heads, problem.head_dim);
    fill(v, kv_heads, problem.value_dim);
    fill(d_o, heads, problem.value_dim);
  }

  ConstTensorView view(const std::vector<float>& values, int count, int dim) const {
    return dense_view(values.data(), 1, problem.seq_q, count, dim);
  }
  ExactResult exact_with(const Problem& other) const {
    return exact_attention(other, view(q, other.heads, 16), view(k, other.kv_heads, 16), view(v, other.kv_heads, 8),
                           view(d_o, other.heads, 8), 2);
  }
  void expect() {
    groups = groups_of(problem);
    expected =
        expected_attention(problem, rounding_of(problem, merges, merges > 0), view(q, problem.heads, 16),
                           view(k, problem.kv_heads, 16), view(v, problem.kv_heads, 8), view(d_o, problem.heads, 8), 2);
    got = expected.exact;
  }
  std::vector<double>& of(Result result) {
    const std::array all = {&got.o, &got.lse, &got.dq, &got.dk, &got.dv};
    return *all[static_cast<std::size_t>(result)];
  }
  int dim(Result result) const {
    return result == Result::lse                         ? 1
           : result == Result::o || result == Result::dv ? problem.value_dim
                                                         : problem.head_dim;
  }
  int heads(Result result) const { return is_key_side(result) ? problem.kv_heads : problem.heads; }
  double* row(Result result, std::int64_t token, int head) {
    const std::int64_t at = result == Result::lse ? head * problem.seq_q + token : token * heads(result) + head;
    return of(result).data() + at * dim(result);
  }
  /// Of `got`, rounded to fp32.
  Judge judge() {
    Judge made(problem, groups, expected);
    for (const Result result : row_results) {
      for (std::int64_t token = 0; token < problem.seq_q; ++token) {
        for (int head = 0; head < heads(result); ++head) {
          std::vector<float> values(row(result, token, head), row(result, token, head) + dim(result));
          made.add(result, 0, token, head, reinterpret_cast<const std::byte*>(values.data()), DType::fp32);
        }
      }
    }
    return made;
  }
  WorstPart worst(Result result) { return judge().comparison(result).worst; }

  Problem problem;
  std::int64_t merges = 4;
  std::vector<float> q, k, v, d_o;
  MaskGroups groups;
  ExpectedResult expected;
  ExactResult got;
};

inline Mask documents(std::vector<std::int64_t> ends) {
  Mask mask = causal_mask();
  mask.documents = std::move(ends);
  return mask;
}

inline void multiply(std::vector<float>& values, std::size_t begin, std::size_t end, float by) {
  for (std::size_t i = begin; i < end; ++i) values[i] *= by;
}

}  // namespace distattn::test

#pragma once
/// What is to be computed: shapes, element type, mask.

#include <cmath>
#include <cstdint>
#include <vector>

#include "distattn/mask.hpp"
#include "distattn/scores.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// One exact attention (docs/mathematics.md). Query heads are a multiple of key/value heads.
struct Problem {
  std::int64_t batch = 1;
  std::int64_t seq_q = 0, seq_kv = 0;
  int heads = 1, kv_heads = 1;
  int head_dim = 0;   ///< dimension of queries and keys: 8 … 576, a multiple of 8
  int value_dim = 0;  ///< dimension of values and outputs, likewise
  /// Whether a key's first value_dim numbers are its value, as in MLA with absorbed projections: k is then the one
  /// buffer that is bound, kept and sent, and dk is its whole gradient, dK + [dV, 0] of keys and values taken apart.
  bool shared_kv = false;
  DType dtype = DType::fp32;  ///< element type in which q, k, v, do are used and sent
  DType wire = DType::fp32;   ///< type of partials and gradients in messages (fp64 if dtype is)
  Scores scores{};
  /// By query head, of a linear position bias: slope · (k − q) is added to the score of the query at position q and the
  /// key at position k. Empty: none.
  std::vector<double> alibi_slopes{};
  Mask mask{};

  int heads_per_kv() const { return heads / kv_heads; }
  /// Elements that a key and its value have together.
  int key_value_dim() const { return shared_kv ? head_dim : head_dim + value_dim; }
  double softmax_scale() const {
    return scores.scale != 0 ? scores.scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
  }
  /// The scores with defaults filled in, as kernels take them.
  Scores resolved_scores() const {
    Scores resolved = scores;
    resolved.scale = softmax_scale();
    return resolved;
  }
  DType accumulator() const { return accumulator_of(dtype); }
  /// Whether statistics have a low part (partial.hpp); fp64 statistics do not.
  bool has_low_lse() const { return accumulator() == DType::fp32; }
  /// Whether they travel with it, and a backward pass takes it. What partial results lose on a 16-bit wire is more.
  bool sends_low_lse() const { return has_low_lse() && wire_type() == accumulator(); }
  /// Whether sums of gradients of scores are kept apart from dq (schedule.hpp); fp64 needs none.
  bool has_sums() const { return accumulator() == DType::fp32; }
  DType wire_type() const { return dtype == DType::fp64 ? DType::fp64 : wire; }
  /// Position of the first query: queries hold the last positions (negative if there are more queries than keys).
  std::int64_t first_query() const { return seq_kv - seq_q; }
  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Throws Error(usage) for problems that no backend computes: zero or negative sizes, heads that do not divide, head
/// dimensions outside 8 … 576 or not multiples of 8, values that are longer than the keys that hold them, sizes in
/// bytes that overflow 63 bits, a scale that the accumulator cannot represent.
void check(const Problem& problem);

/// The usual slopes of a linear position bias (Press et al. 2022): 2^(−8 i / n) for heads i = 1 … n if n is a power of
/// 2; otherwise those of the power of 2 below, and every second one of the power above.
std::vector<double> standard_alibi_slopes(int heads);

/// Whether some query sees a key at a later position.
bool sees_future(const Problem& problem);

}  // namespace distattn
#pragma GCC visibility pop

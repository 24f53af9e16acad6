#pragma once
/// What cuDNN is asked for: one attention, or its gradients, between two diagonals.

#include <compare>
#include <cstdint>
#include <optional>

#include "distattn/types.hpp"

namespace distattn::backends::cudnn {

/// What a plan is made for: rows × columns of segments of q_tokens and k_tokens, packed [batch][head][token][dim].
struct AttendShape {
  Pass pass = Pass::forward;
  DType dtype = DType::bf16;
  std::int64_t batch = 1, heads = 1, kv_heads = 1;
  std::int64_t rows = 0, columns = 0, q_tokens = 0, k_tokens = 0;
  std::int64_t head_dim = 0, value_dim = 0;
  std::optional<std::int64_t> left, right;  ///< as in Piece
  friend auto operator<=>(const AttendShape&, const AttendShape&) = default;
};

}  // namespace distattn::backends::cudnn

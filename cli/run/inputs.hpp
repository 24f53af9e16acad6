#pragma once
/// q, k, v and do: arrays in mapped files, or random values. Read token by token, so that a rank touches its own
/// tokens only.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/problem_options.hpp"
#include "cli/tools/arrays.hpp"
#include "cli/tools/random.hpp"

namespace distattn::cli {

/// The tensors of an attention's input; the numbering of random streams.
using Tensor = RandomTensor;

class Inputs {
 public:
  /// Arrays by name; `d_o` may be missing and is then ones. With `shared_value_dim` there is no v: it is that many
  /// numbers that k begins with. Throws Error(usage) where shapes do not fit together.
  static Inputs from_arrays(std::map<std::string, StoredArray> arrays,
                            std::optional<std::int64_t> shared_value_dim = std::nullopt);
  static Inputs random(const Shape& shape, std::uint64_t seed);
  /// With what else the problem needs.
  static Inputs random(const Problem& problem, std::uint64_t seed);
  bool is_random() const { return seed_.has_value(); }

  const Shape& shape() const { return shape_; }
  bool has_batch() const { return has_batch_; }
  /// The array of the widest element type; null for random values.
  const StoredArray* widest() const;
  /// Where q came from, for messages.
  const std::string& origin() const { return origin_; }
  /// The array that a tensor is read from; null for random values and for a gradient of ones.
  const StoredArray* stored(Tensor tensor) const;

  /// By query head; empty: none. A rank has those of all heads.
  const std::vector<double>& sink_logits() const { return sink_logits_; }
  void set_sink_logits(std::vector<double> logits) { sink_logits_ = std::move(logits); }
  void draw_sink_logits(std::uint64_t seed);
  /// Of a problem with dropout.
  std::uint64_t dropout_seed() const { return dropout_seed_; }
  void set_dropout_seed(std::uint64_t seed) { dropout_seed_ = seed; }

  /// Heads first_head … first_head+heads-1 of token `token` (counted from the tensor's first) of sequence `b`,
  /// rounded to `dtype`, one after the other.
  void read(Tensor tensor, std::int64_t b, std::int64_t token, std::int64_t first_head, std::int64_t heads, DType dtype,
            std::byte* into) const;

  std::int64_t tokens(Tensor tensor) const { return is_key_side(tensor) ? shape_.seq_kv : shape_.seq_q; }
  std::int64_t heads(Tensor tensor) const { return is_key_side(tensor) ? shape_.kv_heads : shape_.heads; }
  std::int64_t dim(Tensor tensor) const {
    return tensor == Tensor::q || tensor == Tensor::k ? shape_.head_dim : shape_.value_dim;
  }

 private:
  static bool is_key_side(Tensor tensor) { return tensor == Tensor::k || tensor == Tensor::v; }

  Shape shape_;
  bool has_batch_ = true;
  std::string origin_;
  std::map<std::string, StoredArray> arrays_;  // keep the files mapped
  std::vector<double> sink_logits_;
  std::uint64_t dropout_seed_ = 0;
  std::array<ConstTensorView, 4> views_{};  // by Tensor; without data: ones or random
  std::optional<std::uint64_t> seed_;
};

}  // namespace distattn::cli

#pragma once
/// One attention of a test: segments and bands, random tensors of exact size, and the same thing in float64.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cli/tools/tolerance.hpp"
#include "kernels/arguments.hpp"
#include "kernels/element.hpp"
#include "kernels/reference/reference.hpp"
#include "simt/array.hpp"

namespace simt {

namespace kernels = distattn::kernels;
using distattn::Band;
using distattn::DType;
using distattn::Run;

/// Of every case with dropout.
constexpr std::uint64_t dropout_seed = 0xfedcba987654321;
constexpr std::uint32_t dropout_offset = 9;

/// Every query segment meets every key segment; a step of one operation per query segment.
struct AttentionCase {
  std::string name;
  std::vector<Run> queries, keys;
  std::vector<Band> bands;
  int head_dim = 64, value_dim = 64;
  kernels::Heads heads = {};
  std::int64_t batch = 1;
  bool carry = false;
  double scale_factor = 1.3;  ///< over 1/√head_dim
  float key_bias = 0;         ///< added to an element of every key, half of it taken from another
  float all = 0;              ///< if not 0: every element of q and k; those of v and dO are then 1
  float key_step = 0;         ///< beside all: elements of the keys grow by this share of it from key to key
  double softcap = 0;
  std::vector<double> slopes = {};  ///< of query heads; empty: no bias
  kernels::Dropout dropout = {};
  bool max_logit = false;
  bool shared_kv = false;  ///< v is the beginning of k

  std::int64_t query_heads() const { return batch * heads.q_count; }
  std::int64_t key_heads() const { return batch * heads.kv_count; }
};

kernels::TileShape shape_of(const AttentionCase& c, DType dtype, double scale = 1);

/// All tensors of a case, by segment: elements of T, results and statistics of Sum.
template <class T, class Sum>
struct Tensors {
  std::vector<Array<T>> q, d_o, k, v;
  std::vector<Array<Sum>> o, lse;                    // forward: carried in, or NaN
  std::vector<Array<Sum>> largest;                   // forward: one of [batch][heads], from -inf on
  std::vector<Array<Sum>> whole_lse, delta;          // backward: of the whole attention
  std::vector<Array<std::uint16_t>> low, whole_low;  // of lse and whole_lse where Sum is float
  std::vector<Array<Sum>> dq, dk, dv;                // backward: carried in, or NaN
  std::vector<std::vector<Band>> bands;              // [query · keys + key]
  std::vector<std::vector<kernels::KeySide>> sides;  // [query]: what the arguments point to

  std::vector<kernels::AttendArgs> forward(const AttentionCase& c, DType dtype, double scale);
  std::vector<kernels::AttendBackwardArgs> backward(const AttentionCase& c, DType dtype, double scale);

 private:
  void list_sides(const AttentionCase& c, bool backward);
};

/// A case with inputs drawn from `seed`, rounded to T, and its exact results.
template <class T>
class Attention {
 public:
  Attention(const AttentionCase& which, unsigned seed);

  /// The operations of a step; valid until the next call.
  std::vector<kernels::AttendArgs> forward();
  std::vector<kernels::AttendBackwardArgs> backward();
  /// For kernels that only add to dq: what is not carried becomes 0.
  void clear_query_gradients();
  /// Backward is to start from what forward() has left, not from the exact statistics.
  void take_statistics();

  /// Largest error of a row of o and of lse; of dq; of dk and dv. Infinite where something is NaN or was not written.
  double forward_error() const;
  double query_gradient_error() const;
  double key_gradients_error() const;
  /// What an error may be.
  double tolerance() const;
  /// The same of dq as a whole, relative to it.
  double mean_query_gradient_error() const;
  const Tensors<T, float>& results() const { return actual_; }

  static DType dtype();

 private:
  void draw(unsigned seed);
  void raise_keys();
  void add_key_bias();
  void compute_exactly();

  AttentionCase case_;
  double scale_;
  Tensors<T, float> actual_;
  Tensors<double, double> exact_;  // the same inputs
};

/// Largest L2 error of a row of `dim`, relative to the row, to the mean row or to elements of 0.3, whichever is
/// largest.
double worst_row(std::span<const float> actual, std::span<const double> exact, std::int64_t dim);
/// Largest absolute error of actual + low, which are fp16; infinities must agree.
double worst_statistic(std::span<const float> actual, std::span<const std::uint16_t> low,
                       std::span<const double> exact);

}  // namespace simt

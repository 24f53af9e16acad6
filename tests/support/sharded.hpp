#pragma once
/// One attention computed by ranks that are threads, put together again and compared with float64.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/tools/oracle.hpp"
#include "distattn/attention.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"

namespace distattn::test {

/// 13 tokens, causal, 4 query heads of 2 key heads, values wider than keys: nothing divides evenly over 4 ranks.
Problem uneven_problem();

/// Random whole tensors of a problem, in its element type.
class Inputs {
 public:
  Inputs(const Problem& problem, std::uint64_t seed);

  /// Adds to one component of every query and of every key, as a bias does, or of the keys of one head alone.
  void add(int component, double to_queries, double to_keys, int key_head = -1);
  /// The same of the first keys, of one batch.
  void add_to_first(std::int64_t keys, int component, double to_keys);
  /// Adds to every element of every value.
  void add_to_values(double what);

  const Problem& problem() const { return problem_; }
  /// Of dropped weights, if the problem has dropout.
  static constexpr std::uint64_t dropout_seed = 0x123456789abcdef;
  static constexpr std::uint32_t dropout_offset = 7;
  /// By head, if the problem has them.
  const std::vector<double>& sink_logits() const { return sink_logits_; }
  ConstTensorView q() const { return view(q_, problem_.seq_q, problem_.heads, problem_.head_dim); }
  ConstTensorView k() const { return view(k_, problem_.seq_kv, problem_.kv_heads, problem_.head_dim); }
  ConstTensorView v() const {
    if (!problem_.shared_kv) return view(v_, problem_.seq_kv, problem_.kv_heads, problem_.value_dim);
    ConstTensorView values = k();
    values.shape[3] = problem_.value_dim;
    return values;
  }
  ConstTensorView d_o() const { return view(d_o_, problem_.seq_q, problem_.heads, problem_.value_dim); }

 private:
  ConstTensorView view(const std::vector<std::byte>& data, std::int64_t tokens, int heads, int dim) const {
    return dense_view(data.data(), problem_.dtype, problem_.batch, tokens, heads, dim);
  }

  void add_to_rows(std::vector<std::byte>& data, int first, int step, int component, double what) const;

  Problem problem_;
  std::vector<std::byte> q_, k_, v_, d_o_;
  std::vector<double> sink_logits_;
};

/// How a rank's tensors lie in memory.
enum class MemoryOrder : std::uint8_t {
  dense,       ///< as [batch, sequence, heads, head_dim], inputs in the problem's type
  heads_last,  ///< as [batch, sequence, head_dim, heads], everything in fp64
  backwards,   ///< as dense with the last token first, everything in fp64
};

/// Whether forward's lse_low is kept for backward.
enum class LowLse : std::uint8_t { kept, left_out };

/// Whether each call waits for its pass, or only the last.
enum class Calls : std::uint8_t { waiting, queued };

/// Whole results as ExactResult; what the device wrote in fp32 or fp64 is kept exactly.
struct ShardedRun {
  std::string backend = "reference";
  std::string odd_backend = {};  ///< of odd ranks; empty: the same
  /// Makes the ranks' devices instead.
  std::function<std::unique_ptr<Device>(const DeviceOptions& options)> make;
  double outside = 0;  ///< of each row's weight, a key outside of the problem has this; its value is 0
  ScheduleRequest options;
  int ranks = 1;
  int threads = 1;  ///< of each rank
  int runs = 1;     ///< of each pass, one after the other; the last one's results are returned
  MemoryOrder order = MemoryOrder::dense;
  LowLse low_lse = LowLse::kept;
  Calls calls = Calls::waiting;
  InprocOptions inproc;
  /// Runs a function for every rank over a transport; null: run_ranks() with `inproc`.
  std::function<void(int ranks, const std::function<void(Rank, Transport&)>&)> world;
};
ExactResult run_sharded(const Inputs& inputs, const ShardedRun& run);

/// What the results should be, gradients of sink logits summed over sequences. There is no dv if values lie in keys.
ExactResult exact_of(const Inputs& inputs);

/// The largest of the relative L2 errors of o, dq, dk, dv and dsink_logits, and the error of lse, as tolerance() means
/// them. Rows that see no key must be −∞ on both sides, and nothing may be NaN: else the error is infinite.
double largest_error(const ExactResult& got, const ExactResult& exact);

}  // namespace distattn::test

#include "cli/run/rank_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <future>

#include "distattn/convert.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "distattn/thread.hpp"

namespace distattn::cli {
namespace {

/// Elements that are worth a thread: reading them takes some milliseconds.
constexpr std::int64_t worth_a_thread = 1 << 20;

/// The rank's tokens of one tensor, [batch][token][head][dim], read with its share of the cores.
std::vector<std::byte> read_shard(const Inputs& inputs, Tensor tensor, const Sharding& sharding, Rank rank, DType dtype,
                                  int most_threads) {
  const bool queries = tensor == Tensor::q || tensor == Tensor::d_o;
  const std::vector<std::int64_t> mine = positions(queries ? sharding.queries : sharding.keys, rank);
  const std::int64_t first = queries ? sharding.problem.first_query() : 0, heads = inputs.heads(tensor);
  const std::int64_t tokens = std::ssize(mine), rows = inputs.shape().batch * tokens;
  const std::int64_t row = heads * inputs.dim(tensor), row_bytes = row * static_cast<std::int64_t>(size_of(dtype));
  std::vector<std::byte> bytes(index(rows * row_bytes));
  const auto read = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t token = mine[index(i % tokens)] - first;
      inputs.read(tensor, i / tokens, token, 0, heads, dtype, bytes.data() + i * row_bytes);
    }
  };
  const std::int64_t threads = std::clamp<std::int64_t>(rows * row / worth_a_thread, 1, most_threads);
  std::vector<std::future<void>> others;
  try {
    for (std::int64_t t = 1; t < threads; ++t) {
      others.push_back(std::async(std::launch::async, read, rows * t / threads, rows * (t + 1) / threads));
    }
  } catch (const std::system_error& refused) {
    throw no_thread(fmt::format("rank {}", rank), "read its tensors", refused);
  }
  read(0, rows / threads);
  for (std::future<void>& other : others) other.get();
  return bytes;
}

}  // namespace

RankTensors::RankTensors(const Sharding& sharding, Rank rank, const Inputs& inputs, Passes passes, int threads)
    : rank_(rank),
      dropout_seed_(inputs.dropout_seed()),
      dtype_(sharding.problem.dtype),
      accumulator_(sharding.problem.accumulator()),
      batch_(sharding.problem.batch),
      queries_(owned_tokens(sharding.queries, rank)),
      keys_(owned_tokens(sharding.keys, rank)),
      heads_(sharding.problem.heads),
      kv_heads_(sharding.problem.kv_heads),
      head_dim_(sharding.problem.head_dim),
      value_dim_(sharding.problem.value_dim),
      shared_kv_(sharding.problem.shared_kv),
      q_(read_shard(inputs, Tensor::q, sharding, rank, dtype_, threads)),
      k_(read_shard(inputs, Tensor::k, sharding, rank, dtype_, threads)) {
  if (!shared_kv_) v_ = read_shard(inputs, Tensor::v, sharding, rank, dtype_, threads);
  const auto room = [&](std::int64_t elements) { return Bytes(index(elements) * size_of(accumulator_)); };
  o_ = room(batch_ * queries_ * heads_ * value_dim_);
  lse_ = room(batch_ * queries_ * heads_);
  if (sharding.problem.has_low_lse()) lse_low_ = room(batch_ * queries_ * heads_);
  if (sharding.problem.scores.max_logit) max_logit_ = room(batch_ * heads_);
  const std::vector<double>& logits = inputs.sink_logits();
  DISTATTN_EXPECT(logits.empty() != sharding.problem.scores.sink_logits);
  sink_logits_ = room(std::ssize(logits));
  convert(reinterpret_cast<const std::byte*>(logits.data()), DType::fp64, sink_logits_.data(), accumulator_,
          std::ssize(logits));
  if (passes == Passes::forward) return;
  dsink_logits_ = room(std::ssize(logits));
  d_o_ = read_shard(inputs, Tensor::d_o, sharding, rank, dtype_, threads);
  dq_ = room(batch_ * queries_ * heads_ * head_dim_);
  dk_ = room(batch_ * keys_ * kv_heads_ * head_dim_);
  if (!shared_kv_) dv_ = room(batch_ * keys_ * kv_heads_ * value_dim_);
}

Bindings RankTensors::bindings() {
  Bindings bindings;
  bindings.dropout_seed = dropout_seed_;
  bindings.q = view(q_, dtype_, heads_, head_dim_, queries_);
  bindings.k = view(k_, dtype_, kv_heads_, head_dim_, keys_);
  if (!shared_kv_) bindings.v = view(v_, dtype_, kv_heads_, value_dim_, keys_);
  bindings.o = view(o_, accumulator_, heads_, value_dim_, queries_);
  bindings.lse = statistics_view(lse_.data(), accumulator_, batch_, heads_, queries_);
  if (!lse_low_.empty()) {
    bindings.lse_low = statistics_view(lse_low_.data(), accumulator_, batch_, heads_, queries_);
  }
  if (!sink_logits_.empty())
    bindings.sink_logits = heads_view(std::as_const(sink_logits_).data(), accumulator_, heads_);
  if (!dsink_logits_.empty()) bindings.dsink_logits = heads_view(dsink_logits_.data(), accumulator_, heads_);
  if (!max_logit_.empty()) bindings.max_logit = dense_view(max_logit_.data(), accumulator_, batch_, 1, heads_, 1);
  bindings.d_o = view(d_o_, dtype_, heads_, value_dim_, queries_);
  bindings.dq = view(dq_, accumulator_, heads_, head_dim_, queries_);
  bindings.dk = view(dk_, accumulator_, kv_heads_, head_dim_, keys_);
  if (!shared_kv_) bindings.dv = view(dv_, accumulator_, kv_heads_, value_dim_, keys_);
  return bindings;
}

ConstTensorView RankTensors::lse() const {
  return statistics_view(lse_.data(), accumulator_, batch_, heads_, queries_);
}

double RankTensors::total_bytes(const Problem& problem, Passes passes) {
  const auto batch = static_cast<double>(problem.batch);
  const double queries = batch * static_cast<double>(problem.seq_q) * problem.heads;
  const double keys = batch * static_cast<double>(problem.seq_kv) * problem.kv_heads;
  const double query_side = queries * problem.head_dim, output = queries * problem.value_dim;
  const double key_side = keys * problem.key_value_dim();
  const auto in = static_cast<double>(size_of(problem.dtype)),
             out = static_cast<double>(size_of(problem.accumulator()));
  const double statistics = problem.has_low_lse() ? 2 : 1;
  const double forward = in * (query_side + key_side) + out * (output + statistics * queries);
  return passes == Passes::forward ? forward : forward + in * output + out * (query_side + key_side);
}

}  // namespace distattn::cli

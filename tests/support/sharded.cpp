#include "tests/support/sharded.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "cli/tools/random.hpp"
#include "distattn/convert.hpp"
#include "distattn/registry.hpp"

namespace distattn::test {
namespace {

std::vector<std::byte> draw(std::uint64_t seed, RandomTensor tensor, std::int64_t count, DType dtype) {
  std::vector<std::byte> data(static_cast<std::size_t>(count) * size_of(dtype));
  fill_normal(seed, tensor, 0, count, dtype, data.data());
  return data;
}

/// One rank's shard of a whole tensor.
class Shard {
 public:
  /// Room for a result of `tokens`, in fp64.
  Shard(const std::array<std::int64_t, 4>& whole, std::int64_t tokens, MemoryOrder order)
      : Shard(whole, tokens, DType::fp64, order) {}
  /// An input.
  Shard(const ConstTensorView& whole, std::int64_t first, std::span<const Segment> segments, Rank rank,
        MemoryOrder order)
      : Shard(whole.shape, static_cast<std::int64_t>(positions(segments, rank).size()), whole.dtype,
              MemoryOrder::dense) {
    extract_shard(whole, first, segments, rank, view());
    if (order == MemoryOrder::dense) return;
    Shard other(whole.shape, view_.sequence(), order);
    const std::int64_t dim = view_.head_dim();
    std::vector<double> row(static_cast<std::size_t>(dim));
    for (std::int64_t b = 0; b < view_.batch(); ++b) {
      for (std::int64_t s = 0; s < view_.sequence(); ++s) {
        for (std::int64_t h = 0; h < view_.heads(); ++h) {
          convert(view_.row(b, s, h), view_.dtype, reinterpret_cast<std::byte*>(row.data()), DType::fp64, dim);
          auto* into = reinterpret_cast<double*>(other.view_.row(b, s, h));
          for (std::int64_t d = 0; d < dim; ++d) into[d * other.view_.strides[3]] = row[static_cast<std::size_t>(d)];
        }
      }
    }
    *this = std::move(other);
  }

  const TensorView& view() const { return view_; }

 private:
  Shard(const std::array<std::int64_t, 4>& whole, std::int64_t tokens, DType dtype, MemoryOrder order)
      : data_(static_cast<std::size_t>(whole[0] * tokens * whole[2] * whole[3]) * size_of(dtype)),
        view_(dense_view(data_.data(), dtype, whole[0], tokens, whole[2], whole[3])) {
    if (order == MemoryOrder::heads_last)
      view_.strides = {tokens * whole[2] * whole[3], whole[2] * whole[3], 1, whole[2]};
    if (order == MemoryOrder::backwards && tokens > 0) {
      view_.data = view_.row(0, tokens - 1, 0);
      view_.strides[1] = -view_.strides[1];
    }
  }

  std::vector<std::byte> data_;
  TensorView view_;
};

/// Writes a shard of doubles into a dense whole tensor [batch, sequence, heads, dim], or statistics.
void scatter(const TensorView& shard, const std::vector<std::int64_t>& tokens, std::int64_t first,
             std::vector<double>& whole, bool statistics) {
  const std::int64_t sequence = static_cast<std::int64_t>(whole.size()) /
                                std::max<std::int64_t>(1, shard.batch() * shard.heads() * shard.head_dim());
  for (std::int64_t b = 0; b < shard.batch(); ++b) {
    for (std::int64_t h = 0; h < shard.heads(); ++h) {
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        const std::int64_t at = tokens[t] - first;
        const auto* row = reinterpret_cast<const double*>(shard.row(b, static_cast<std::int64_t>(t), h));
        const std::int64_t into = statistics ? (b * shard.heads() + h) * sequence + at
                                             : ((b * sequence + at) * shard.heads() + h) * shard.head_dim();
        for (std::int64_t d = 0; d < shard.head_dim(); ++d) {
          whole[static_cast<std::size_t>(into + d)] = row[d * shard.strides[3]];
        }
      }
    }
  }
}

double relative_l2(const std::vector<double>& got, const std::vector<double>& exact) {
  if (got.size() != exact.size()) return INFINITY;
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - exact[i]) * (got[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  if (std::isnan(difference)) return INFINITY;
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

double largest_difference(const std::vector<double>& got, const std::vector<double>& exact) {
  if (got.size() != exact.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == exact[i]) continue;
    const double difference = std::abs(got[i] - exact[i]);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

/// As a share of the largest magnitude, where that is above 1.
double lse_error(const std::vector<double>& got, const std::vector<double>& exact) {
  double magnitude = 1;
  for (const double value : exact)
    if (std::isfinite(value)) magnitude = std::max(magnitude, std::abs(value));
  return largest_difference(got, exact) / magnitude;
}

/// Every element of a shard of doubles, times a factor and a term more.
void scale_rows(const TensorView& shard, double factor, double more) {
  for (std::int64_t b = 0; b < shard.batch(); ++b) {
    for (std::int64_t s = 0; s < shard.sequence(); ++s) {
      for (std::int64_t h = 0; h < shard.heads(); ++h) {
        auto* const row = reinterpret_cast<double*>(shard.row(b, s, h));
        for (std::int64_t d = 0; d < shard.head_dim(); ++d) {
          row[d * shard.strides[3]] = row[d * shard.strides[3]] * factor + more;
        }
      }
    }
  }
}

void call(Attention& attention, const ShardedRun& run, const Bindings& bindings, Pass pass) {
  for (int i = 0; i < run.runs; ++i) {
    if (run.calls == Calls::queued) {
      pass == Pass::forward ? attention.forward(bindings, {}) : attention.backward(bindings, {});
    } else {
      pass == Pass::forward ? attention.forward(bindings) : attention.backward(bindings);
    }
  }
  attention.wait();
}

}  // namespace

Problem uneven_problem() {
  Problem problem;
  problem.seq_q = problem.seq_kv = 13;
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim = 8;
  problem.value_dim = 16;
  problem.mask = causal_mask();
  return problem;
}

Inputs::Inputs(const Problem& problem, std::uint64_t seed)
    : problem_(problem),
      q_(draw(seed, RandomTensor::q, problem.batch * problem.seq_q * problem.heads * problem.head_dim, problem.dtype)),
      k_(draw(seed, RandomTensor::k, problem.batch * problem.seq_kv * problem.kv_heads * problem.head_dim,
              problem.dtype)),
      v_(draw(seed, RandomTensor::v, problem.batch * problem.seq_kv * problem.kv_heads * problem.value_dim,
              problem.dtype)),
      d_o_(draw(seed, RandomTensor::d_o, problem.batch * problem.seq_q * problem.heads * problem.value_dim,
                problem.dtype)) {
  for (int head = 0; problem.scores.sink_logits && head < problem.heads; ++head) {
    sink_logits_.push_back(random_normal(seed, RandomTensor::sink_logits, head) + 1);
  }
}

void Inputs::add(int component, double to_queries, double to_keys, int key_head) {
  add_to_rows(q_, 0, 1, component, to_queries);
  const int step = key_head < 0 ? 1 : problem_.kv_heads;
  add_to_rows(k_, std::max(0, key_head), step, component, to_keys);
}

void Inputs::add_to_first(std::int64_t keys, int component, double to_keys) {
  DISTATTN_EXPECT(problem_.batch == 1);
  const std::size_t row = static_cast<std::size_t>(problem_.head_dim) * size_of(problem_.dtype);
  const auto end =
      k_.begin() + static_cast<std::ptrdiff_t>(keys * problem_.kv_heads) * static_cast<std::ptrdiff_t>(row);
  std::vector<std::byte> first(k_.begin(), end);
  add_to_rows(first, 0, 1, component, to_keys);
  std::copy(first.begin(), first.end(), k_.begin());
}

void Inputs::add_to_values(double what) {
  DISTATTN_EXPECT(problem_.value_dim == problem_.head_dim);
  for (int x = 0; x < problem_.value_dim; ++x) add_to_rows(v_, 0, 1, x, what);
}

void Inputs::add_to_rows(std::vector<std::byte>& data, int first, int step, int component, double what) const {
  const std::size_t size = size_of(problem_.dtype), row = static_cast<std::size_t>(problem_.head_dim) * size;
  for (std::size_t at = static_cast<std::size_t>(first) * row + static_cast<std::size_t>(component) * size;
       at < data.size(); at += static_cast<std::size_t>(step) * row) {
    double value = 0;
    auto* const bytes = reinterpret_cast<std::byte*>(&value);
    convert(data.data() + at, problem_.dtype, bytes, DType::fp64, 1);
    value += what;
    convert(bytes, DType::fp64, data.data() + at, problem_.dtype, 1);
  }
}

ExactResult run_sharded(const Inputs& inputs, const ShardedRun& run) {
  const Problem& problem = inputs.problem();
  const auto elements = [&](std::int64_t tokens, int heads, int dim) {
    return static_cast<std::size_t>(problem.batch * tokens * heads * dim);
  };
  ExactResult result;
  result.o.resize(elements(problem.seq_q, problem.heads, problem.value_dim), NAN);
  result.lse.resize(elements(problem.seq_q, problem.heads, 1), NAN);
  if (run.options.passes == Passes::both) {
    result.dq.resize(elements(problem.seq_q, problem.heads, problem.head_dim), NAN);
    result.dk.resize(elements(problem.seq_kv, problem.kv_heads, problem.head_dim), NAN);
    if (!problem.shared_kv) result.dv.resize(elements(problem.seq_kv, problem.kv_heads, problem.value_dim), NAN);
  }
  const auto plan = std::make_shared<const AttentionPlan>(problem, run.ranks, run.options);

  if (problem.scores.sink_logits && run.options.passes == Passes::both) {
    result.dsink_logits.resize(static_cast<std::size_t>(problem.heads));
  }
  if (problem.scores.max_logit) {
    result.max_logit.resize(static_cast<std::size_t>(problem.batch * problem.heads), -INFINITY);
  }
  std::mutex adding;

  // Ranks write disjoint elements of `result`, and add to one gradient in turn.
  const auto rank_body = [&](Rank rank, Transport& transport) {
    const bool odd = rank % 2 == 1 && !run.odd_backend.empty();
    const DeviceOptions options{run.threads, run.ranks};
    const auto device = run.make ? run.make(options) : make_device(odd ? run.odd_backend : run.backend, options);
    Attention attention(plan, *device, transport);
    const Sharding& sharding = plan->outline(Pass::forward).sharding;
    const auto queries = attention.query_positions(), keys = attention.key_positions();
    const auto query_count = static_cast<std::int64_t>(queries.size());
    const auto key_count = static_cast<std::int64_t>(keys.size());
    const std::int64_t first = problem.first_query();

    Shard q(inputs.q(), first, sharding.queries, rank, run.order);
    Shard k(inputs.k(), 0, sharding.keys, rank, run.order), v(inputs.v(), 0, sharding.keys, rank, run.order);
    Shard o(inputs.d_o().shape, query_count, run.order);
    Shard lse({problem.batch, 0, problem.heads, 1}, query_count, run.order);
    Shard lse_low({problem.batch, 0, problem.heads, 1}, query_count, run.order);
    Bindings bindings;
    bindings.dropout_seed = Inputs::dropout_seed;
    bindings.dropout_offset = Inputs::dropout_offset;
    bindings.q = q.view();
    bindings.k = k.view();
    if (!problem.shared_kv) bindings.v = v.view();
    bindings.o = o.view();
    bindings.lse = lse.view();
    if (problem.has_low_lse() && run.low_lse == LowLse::kept) bindings.lse_low = lse_low.view();
    const std::vector<double>& logits = inputs.sink_logits();
    std::vector<double> shares(logits.size(), NAN);
    if (!logits.empty()) {
      bindings.sink_logits = heads_view(reinterpret_cast<const std::byte*>(logits.data()), DType::fp64, problem.heads);
    }
    std::vector<double> tops(result.max_logit.size(), NAN);
    if (!tops.empty()) {
      bindings.max_logit =
          dense_view(reinterpret_cast<std::byte*>(tops.data()), DType::fp64, problem.batch, 1, problem.heads, 1);
    }
    call(attention, run, bindings, Pass::forward);
    {
      const std::scoped_lock lock(adding);
      for (std::size_t i = 0; i < tops.size(); ++i) {
        if (!(result.max_logit[i] >= tops[i])) result.max_logit[i] = tops[i];
      }
    }
    scatter(o.view(), queries, first, result.o, false);
    scatter(lse.view(), queries, first, result.lse, true);
    if (run.options.passes == Passes::forward) return;

    scale_rows(o.view(), 1 - run.outside, 0);
    scale_rows(lse.view(), 1, -std::log1p(-run.outside));
    Shard d_o(inputs.d_o(), first, sharding.queries, rank, run.order);
    Shard dq(inputs.q().shape, query_count, run.order);
    Shard dk(inputs.k().shape, key_count, run.order), dv(inputs.v().shape, key_count, run.order);
    bindings.d_o = d_o.view();
    bindings.dq = dq.view();
    bindings.dk = dk.view();
    if (!problem.shared_kv) bindings.dv = dv.view();
    if (!shares.empty()) {
      bindings.dsink_logits = heads_view(reinterpret_cast<std::byte*>(shares.data()), DType::fp64, problem.heads);
    }
    call(attention, run, bindings, Pass::backward);
    {
      const std::scoped_lock lock(adding);
      for (std::size_t head = 0; head < shares.size(); ++head) result.dsink_logits[head] += shares[head];
    }
    scatter(dq.view(), queries, first, result.dq, false);
    scatter(dk.view(), keys, 0, result.dk, false);
    if (!problem.shared_kv) scatter(dv.view(), keys, 0, result.dv, false);
  };
  if (run.world) {
    run.world(run.ranks, rank_body);
  } else {
    run_ranks(run.ranks, rank_body, run.inproc);
  }
  return result;
}

ExactResult exact_of(const Inputs& inputs) {
  const Problem& problem = inputs.problem();
  ExactResult exact =
      exact_attention(problem, inputs.q(), inputs.k(), inputs.v(), inputs.d_o(), 1, inputs.sink_logits(),
                      {.seed = Inputs::dropout_seed, .offset = Inputs::dropout_offset});
  std::vector<double> sums(inputs.sink_logits().size());
  for (std::size_t i = 0; i < exact.dsink_logits.size(); ++i) sums[i % sums.size()] += exact.dsink_logits[i];
  exact.dsink_logits = std::move(sums);
  if (problem.shared_kv) exact.dv.clear();
  return exact;
}

double largest_error(const ExactResult& got, const ExactResult& exact) {
  return std::max({relative_l2(got.o, exact.o), lse_error(got.lse, exact.lse), relative_l2(got.dq, exact.dq),
                   relative_l2(got.dk, exact.dk), relative_l2(got.dv, exact.dv),
                   relative_l2(got.dsink_logits, exact.dsink_logits),
                   got.max_logit.empty() ? 0 : lse_error(got.max_logit, exact.max_logit)});
}

}  // namespace distattn::test

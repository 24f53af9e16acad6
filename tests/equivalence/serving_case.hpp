#pragma once
/// Requests of any lengths with all that they read, a rank's tensors for them, and what is right, from the definition.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "distattn/serving.hpp"
#include "kernels/element.hpp"

namespace distattn::test {

using Numbers = std::vector<double>;

inline Problem serving_problem(DType dtype, std::int64_t longest, std::int64_t most_queries) {
  Problem problem;
  problem.seq_kv = longest;
  problem.seq_q = most_queries;
  problem.heads = 6;
  problem.kv_heads = 2;
  problem.head_dim = 24;
  problem.value_dim = 40;
  problem.dtype = dtype;
  problem.wire = accumulator_of(dtype);
  problem.mask = causal_mask();
  return problem;
}

/// Numbers of a tensor in memory of its type; those that are not drawn are NaN, which nobody may read.
class Memory {
 public:
  Memory() = default;
  Memory(DType dtype, std::int64_t count) : dtype_(dtype), bytes_(static_cast<std::size_t>(count) * size_of(dtype)) {
    for (std::int64_t i = 0; i < count; ++i) set(i, std::numeric_limits<double>::quiet_NaN());
  }
  void set(std::int64_t at, double value) {
    kernels::with_element(dtype_, [&]<class Element>(Element) {
      reinterpret_cast<Element*>(bytes_.data())[at] = kernels::rounded_to<Element>(value);
    });
  }
  double get(std::int64_t at) const {
    double value = 0;
    kernels::with_element(dtype_, [&]<class Element>(Element) {
      value = static_cast<double>(reinterpret_cast<const Element*>(bytes_.data())[at]);
    });
    return value;
  }
  TensorView view(std::int64_t batch, std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
    return dense_view(bytes_.data(), dtype_, batch, tokens, heads, dim);
  }
  friend bool operator==(const Memory&, const Memory&) = default;

 private:
  DType dtype_ = DType::fp32;
  std::vector<std::byte> bytes_;
};

/// `count` normal numbers as the type holds them.
inline Numbers drawn(std::mt19937& random, DType dtype, std::int64_t count) {
  std::normal_distribution<double> normal;
  Memory memory(dtype, 1);
  Numbers numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    memory.set(0, normal(random));
    numbers.push_back(memory.get(0));
  }
  return numbers;
}

/// A request with all of its sequence: q [queries, heads, head_dim], k and v [keys, kv_heads, dim].
struct Sequence {
  ServedRequest request;
  Numbers q, k, v;
};

struct Mix {
  Problem problem;
  std::vector<Sequence> sequences;
  Numbers sink_logits;

  Mix(const Problem& given, int ranks, std::span<const std::pair<std::int64_t, std::int64_t>> lengths, unsigned seed)
      : problem(given) {
    std::mt19937 random(seed);
    for (const auto& [keys, queries] : lengths) {
      const auto owner = static_cast<Rank>(random() % static_cast<unsigned>(ranks));
      sequences.push_back({{keys, queries, owner},
                           drawn(random, problem.dtype, queries * problem.heads * problem.head_dim),
                           drawn(random, problem.dtype, keys * problem.kv_heads * problem.head_dim),
                           drawn(random, problem.dtype, keys * problem.kv_heads * problem.value_dim)});
    }
    sink_logits = drawn(random, problem.accumulator(), problem.heads);
  }
  std::vector<ServedRequest> requests() const {
    std::vector<ServedRequest> all;
    for (const Sequence& sequence : sequences) all.push_back(sequence.request);
    return all;
  }
};

/// o and lse of query i of a head, from the definition.
inline Numbers expected_row(const Mix& mix, const Sequence& sequence, std::int64_t i, int head) {
  const Problem& problem = mix.problem;
  const std::int64_t position = sequence.request.keys - sequence.request.queries + i;
  const std::int64_t left = problem.mask.left;
  const int kv = head / problem.heads_per_kv();
  const double* const q = &sequence.q[static_cast<std::size_t>((i * problem.heads + head) * problem.head_dim)];
  Numbers row(static_cast<std::size_t>(problem.value_dim) + 1, 0.0);
  const bool sinks = problem.scores.sink_logits;
  double top = sinks ? mix.sink_logits[static_cast<std::size_t>(head)] : -INFINITY, sum = sinks ? 1 : 0;
  for (std::int64_t j = left < 0 ? 0 : std::max<std::int64_t>(0, position - left); j <= position; ++j) {
    const auto key = static_cast<std::size_t>(j * problem.kv_heads + kv);
    double score = 0;
    for (int x = 0; x < problem.head_dim; ++x) {
      score += q[x] * sequence.k[key * static_cast<std::size_t>(problem.head_dim) + static_cast<std::size_t>(x)];
    }
    score *= problem.softmax_scale();
    const double cap = problem.scores.softcap;
    if (cap > 0) score = cap * std::tanh(score / cap);
    if (!problem.alibi_slopes.empty()) {
      score += problem.alibi_slopes[static_cast<std::size_t>(head)] * static_cast<double>(j - position);
    }
    const double before = top;
    top = std::max(top, score);
    const double keep = std::exp(before - top), weight = std::exp(score - top);
    sum = sum * keep + weight;
    for (std::size_t x = 0; x < static_cast<std::size_t>(problem.value_dim); ++x) {
      row[x] = row[x] * keep + weight * sequence.v[key * static_cast<std::size_t>(problem.value_dim) + x];
    }
  }
  for (double& number : row) number /= sum;
  row.back() = top + std::log(sum);
  return row;
}

/// How a rank keeps the tokens that it stores.
struct CacheForm {
  std::int64_t block = 1;
  std::int64_t page = 0;  ///< tokens; 0: no pages
};

/// A rank's tensors for a mix.
struct RankTensors {
  Memory q, k, v, o, lse, sinks;
  std::vector<std::int32_t> pages;
  ServingCall call;
  std::vector<ServedRequest> requests;

  RankTensors(const Mix& mix, const CacheForm& form, Rank rank, int ranks, DType results, unsigned seed)
      : requests(mix.requests()) {
    const Problem& problem = mix.problem;
    const Dealing dealing{form.block, ranks};
    const auto count = std::ssize(requests);
    std::int64_t longest = 1, queries = 0;
    for (const ServedRequest& request : requests) {
      longest = std::max(longest, dealing.stored(request.keys, rank));
      if (request.owner == rank) queries += request.queries;
    }
    std::int64_t sequences = count, tokens = longest;
    if (form.page > 0) {  // in an order of chance, with some pages that nobody has
      call.pages_a_request = ceil_div(longest, form.page) + 1;
      tokens = form.page;
      sequences = count * call.pages_a_request + 3;
      std::vector<std::int32_t> all(static_cast<std::size_t>(sequences));
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), std::mt19937(seed));
      pages.assign(all.begin(), all.begin() + count * call.pages_a_request);
    }
    k = Memory(problem.dtype, sequences * tokens * problem.kv_heads * problem.head_dim);
    v = Memory(problem.dtype, sequences * tokens * problem.kv_heads * problem.value_dim);
    q = Memory(problem.dtype, queries * problem.heads * problem.head_dim);
    o = Memory(results, queries * problem.heads * problem.value_dim);
    lse = Memory(problem.accumulator(), queries * problem.heads);
    std::int64_t query = 0;
    for (std::int64_t r = 0; r < count; ++r) {
      const Sequence& sequence = mix.sequences[static_cast<std::size_t>(r)];
      for (std::int64_t t = 0, own = 0; t < sequence.request.keys; ++t) {
        if (dealing.owner(t) != rank) continue;
        std::int64_t row = r * tokens + own;
        if (form.page > 0) {
          row =
              pages[static_cast<std::size_t>(r * call.pages_a_request + own / form.page)] * form.page + own % form.page;
        }
        copy(sequence.k, t * problem.kv_heads * problem.head_dim, problem.kv_heads * problem.head_dim, k, row);
        copy(sequence.v, t * problem.kv_heads * problem.value_dim, problem.kv_heads * problem.value_dim, v, row);
        ++own;
      }
      if (sequence.request.owner != rank) continue;
      copy(sequence.q, 0, std::ssize(sequence.q), q, query, problem.heads * problem.head_dim);
      query += sequence.request.queries;
    }
    for (std::size_t r = 0; form.page > 0 && r < static_cast<std::size_t>(count); ++r) {
      pages[(r + 1) * static_cast<std::size_t>(call.pages_a_request) - 1] = -1;  // which is not read
    }
    call.requests = requests;
    call.pages = pages;
    call.k = k.view(sequences, tokens, problem.kv_heads, problem.head_dim);
    call.v = v.view(sequences, tokens, problem.kv_heads, problem.value_dim);
    call.q = q.view(1, queries, problem.heads, problem.head_dim);
    call.o = o.view(1, queries, problem.heads, problem.value_dim);
    call.lse = lse.view(1, queries, problem.heads, 1);
    if (!problem.scores.sink_logits) return;
    sinks = Memory(problem.accumulator(), problem.heads);
    copy(mix.sink_logits, 0, problem.heads, sinks, 0);
    call.sink_logits = sinks.view(1, 1, problem.heads, 1);
  }

 private:
  /// Into row `row` of `width` numbers.
  static void copy(const Numbers& from, std::int64_t first, std::int64_t count, Memory& into, std::int64_t row,
                   std::int64_t width = 0) {
    for (std::int64_t i = 0; i < count; ++i) {
      into.set(row * (width > 0 ? width : count) + i, from[static_cast<std::size_t>(first + i)]);
    }
  }
};

/// Relative L2 error of o and largest error of lse over the requests that the rank owns.
inline std::pair<double, double> errors_of(const Mix& mix, const RankTensors& tensors, Rank rank) {
  const Problem& problem = mix.problem;
  double squares = 0, all = 0, worst = 0;
  std::int64_t query = 0;
  for (const Sequence& sequence : mix.sequences) {
    if (sequence.request.owner != rank) continue;
    for (std::int64_t i = 0; i < sequence.request.queries; ++i, ++query) {
      for (int head = 0; head < problem.heads; ++head) {
        const Numbers row = expected_row(mix, sequence, i, head);
        for (int x = 0; x < problem.value_dim; ++x) {
          const double right = row[static_cast<std::size_t>(x)];
          const double error = tensors.o.get((query * problem.heads + head) * problem.value_dim + x) - right;
          squares += error * error;
          all += right * right;
        }
        const double error = std::abs(tensors.lse.get(query * problem.heads + head) - row.back());
        worst = std::max(worst, std::isnan(error) ? INFINITY : error / std::max(1.0, std::abs(row.back())));
      }
    }
  }
  return {all > 0 ? std::sqrt(squares / all) : 0, worst};
}

}  // namespace distattn::test

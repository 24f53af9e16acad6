/// Requests of any lengths, in caches of any kind over any number of ranks, against float64.

#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <random>

#include "catch.hpp"
#include "cli/tools/tolerance.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"
#include "distattn/serving.hpp"
#include "kernels/element.hpp"

using namespace distattn;

namespace {

using Numbers = std::vector<double>;

Problem serving_problem(DType dtype, std::int64_t longest, std::int64_t most_queries) {
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
Numbers drawn(std::mt19937& random, DType dtype, std::int64_t count) {
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
Numbers expected_row(const Mix& mix, const Sequence& sequence, std::int64_t i, int head) {
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
          row = pages[static_cast<std::size_t>(r * call.pages_a_request + own / form.page)] * form.page +
                own % form.page;
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
std::pair<double, double> errors_of(const Mix& mix, const RankTensors& tensors, Rank rank) {
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

std::unique_ptr<Device> device_of(const std::string& backend, int threads) {
  DeviceOptions options;
  options.threads = threads;
  return make_device(backend, options);
}

struct Way {
  std::string backend = "cpu";
  int ranks = 1, threads = 1;
  CacheForm form;
};

/// The results of all ranks, o and lse, after they were found right.
std::vector<Memory> serve(const Mix& mix, const Way& way, unsigned seed = 1) {
  std::vector<Memory> results(static_cast<std::size_t>(way.ranks) * 2);
  std::mutex mutex;
  run_ranks(way.ranks, [&](Rank rank, Transport& transport) {
    const auto device = device_of(way.backend, way.threads);
    Serving serving(mix.problem, way.form.block, *device, transport);
    RankTensors tensors(mix, way.form, rank, way.ranks, mix.problem.accumulator(), seed);
    serving.attend(tensors.call);
    const auto [error, lse_error] = errors_of(mix, tensors, rank);
    const std::scoped_lock lock(mutex);
    CAPTURE(way.backend, way.ranks, way.form.block, way.form.page, name_of(mix.problem.dtype), rank, seed);
    const double bound = tolerance(mix.problem, way.ranks);
    CHECK(error <= bound);
    CHECK(lse_error <= bound);
    results[static_cast<std::size_t>(2 * rank)] = tensors.o;
    results[static_cast<std::size_t>(2 * rank + 1)] = tensors.lse;
  });
  return results;
}

using Lengths = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Of every kind that kernels take another way for: one query, few and many, as many queries as keys, one key.
const Lengths awkward = {{1, 1}, {700, 1}, {129, 16}, {333, 17}, {64, 64}, {515, 40}, {16, 3}, {257, 200}};

Lengths drawn_lengths(std::mt19937& random, std::int64_t longest, std::int64_t most_queries) {
  Lengths lengths(1 + random() % 6);
  for (auto& [keys, queries] : lengths) {
    keys = 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(longest));
    queries = 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(std::min(keys, most_queries)));
  }
  return lengths;
}

}  // namespace

TEST_CASE("requests of drawn lengths, pages and ranks agree with float64") {
  const unsigned seed = 20261;
  std::mt19937 random(seed);
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      const std::int64_t blocks[] = {1, 3, 16, 64}, pages[] = {0, 16, 48, 128};
      const CacheForm form{blocks[random() % 4], pages[random() % 4]};
      Problem problem = serving_problem(dtype, 600, 64);
      if (random() % 2 == 0) problem.mask.left = static_cast<std::int64_t>(random() % 300);
      const Mix mix(problem, ranks, drawn_lengths(random, problem.seq_kv, problem.seq_q), seed);
      serve(mix, {"cpu", ranks, 2, form}, seed);
      serve(mix, {"reference", ranks, 1, form}, seed);
    }
  }
}

TEST_CASE("requests that kernels take other ways for agree with float64") {
  for (const CacheForm& form : {CacheForm{1, 0}, CacheForm{16, 16}, CacheForm{5, 64}}) {
    for (const int ranks : {1, 3}) {
      for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
        serve(Mix(serving_problem(dtype, 700, 200), ranks, awkward, 7), {"cpu", ranks, 2, form});
      }
    }
  }
  serve(Mix(serving_problem(DType::fp64, 700, 200), 2, awkward, 7), {"reference", 2, 1, {4, 16}});
}

TEST_CASE("serving has windows, caps, sinks and, on one rank, a bias of positions") {
  for (const std::string backend : {"cpu", "reference"}) {
    for (const int ranks : {1, 4}) {
      Problem problem = serving_problem(DType::fp32, 700, 200);
      problem.scores.softcap = 2;
      problem.scores.sink_logits = true;
      problem.mask.left = 100;
      if (ranks == 1) problem.alibi_slopes = standard_alibi_slopes(problem.heads);
      serve(Mix(problem, ranks, awkward, 11), {backend, ranks, 1, {8, 32}});
    }
  }
}

TEST_CASE("neither threads nor pages change a bit of what is served") {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const int ranks : {1, 2}) {
      const Mix mix(serving_problem(dtype, 5000, 200), ranks, Lengths{{5000, 1}, {2500, 9}, {900, 70}, {3, 2}}, 3);
      const auto first = serve(mix, {"cpu", ranks, 1, {16, 0}});
      CHECK(first == serve(mix, {"cpu", ranks, 3, {16, 0}}));
      CHECK(first == serve(mix, {"cpu", ranks, 1, {16, 16}}));
      CHECK(first == serve(mix, {"cpu", ranks, 2, {16, 80}}));
    }
  }
}

TEST_CASE("one handle serves requests that grow, come and leave") {
  const int ranks = 3;
  Lengths lengths = {{90, 90}, {200, 1}, {31, 31}};
  run_ranks(ranks, [&](Rank rank, Transport& transport) {
    const auto device = device_of("cpu", 1);
    Serving serving(serving_problem(DType::bf16, 300, 100), 16, *device, transport);
    Lengths now = lengths;
    for (unsigned call = 0; call < 6; ++call) {
      const Mix mix(serving.problem(), ranks, now, call);
      RankTensors tensors(mix, {16, 16}, rank, ranks, DType::bf16, call);
      serving.attend(tensors.call);
      const auto [error, lse_error] = errors_of(mix, tensors, rank);
      if (error > 4e-3 || lse_error > 1e-5) throw Error(ErrorKind::peer, "wrong results (of a call): look");
      for (auto& [keys, queries] : now) {
        ++keys;
        queries = 1;
      }
      if (call == 2) now.push_back({64, 64});
      if (call == 4) now.erase(now.begin());
    }
  });
}

TEST_CASE("bad requests are refused by number before anything is read") {
  const Problem problem = serving_problem(DType::fp32, 100, 8);
  run_ranks(1, [&](Rank, Transport& transport) {
    const auto device = device_of("cpu", 1);
    Serving serving(problem, 1, *device, transport);
    const Mix mix(problem, 1, Lengths{{40, 1}, {100, 8}}, 5);
    RankTensors paged(mix, {1, 16}, 0, 1, DType::fp32, 1), plain(mix, {1, 0}, 0, 1, DType::fp32, 1);
    const auto refused = [&](const ServingCall& call, const std::string& why) {
      try {
        serving.attend(call);
        return false;
      } catch (const Error& error) {
        CAPTURE(std::string(error.what()));
        return error.kind() == ErrorKind::usage && std::string(error.what()).find(why) != std::string::npos;
      }
    };
    const auto with_request = [&](RankTensors& tensors, const ServedRequest& request, const std::string& why) {
      const ServedRequest before = tensors.requests[1];
      tensors.requests[1] = request;
      const bool is = refused(tensors.call, why);
      tensors.requests[1] = before;
      return is;
    };
    const auto with_page = [&](std::size_t at, std::int32_t page, const std::string& why) {
      const std::int32_t before = paged.pages[at];
      paged.pages[at] = page;
      const bool is = refused(paged.call, why);
      paged.pages[at] = before;
      return is;
    };
    const auto width = static_cast<std::size_t>(paged.call.pages_a_request);
    CHECK(with_request(paged, {101, 1, 0}, "request 1 has 101 keys"));
    CHECK(with_request(paged, {3, 4, 0}, "request 1 has 3 keys"));
    CHECK(with_request(paged, {50, 9, 0}, "request 1 has 9 queries"));
    CHECK(with_request(paged, {50, 0, 0}, "request 1 has 0 queries"));
    CHECK(with_request(paged, {50, 8, 1}, "request 1 is owned by rank 1"));
    CHECK(with_page(width + 2, -1, "request 1 has page -1"));
    CHECK(with_page(width + 2, 1000, "request 1 has page 1000"));
    CHECK(with_page(width + 2, paged.pages[width], "twice"));
    ServingCall narrow = paged.call;
    narrow.pages_a_request = 2;
    narrow.pages = narrow.pages.first(4);
    CHECK(refused(narrow, "request 0 needs 3 pages (its table has 2)"));
    ServingCall shorter = plain.call;
    shorter.k.shape[1] = shorter.v.shape[1] = 60;
    CHECK(refused(shorter, "request 1 has 100 keys on this rank (its cache has room for 60)"));
    ServingCall wrong = paged.call;
    wrong.k.dtype = DType::bf16;
    CHECK(refused(wrong, "k is bf16"));
    wrong = paged.call;
    wrong.o = {};
    CHECK(refused(wrong, "no o"));
    CHECK(std::isnan(paged.o.get(0)));  // nothing was written
    serving.attend(paged.call);         // and the handle is as good as before
    CHECK(errors_of(mix, paged, 0).first < 1e-5);
  });
}

TEST_CASE("ranks that serve different lists find out") {
  CHECK_THROWS_WITH(run_ranks(2,
                              [&](Rank rank, Transport& transport) {
                                const Problem problem = serving_problem(DType::fp32, 100, 8);
                                const auto device = device_of("cpu", 1);
                                Serving serving(problem, 1, *device, transport);
                                const Mix mix(problem, 2, Lengths{{40 + rank, 1}}, 5);
                                RankTensors tensors(mix, {1, 0}, rank, 2, DType::fp32, 1);
                                serving.attend(tensors.call);
                              }),
                    contains_text("serves other requests"));
}

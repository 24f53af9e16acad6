#include "cli/bench/bench_serving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

#include "cli/run/all_gather.hpp"
#include "cli/run/memory.hpp"
#include "cli/run/node_cores.hpp"
#include "cli/run/ranks.hpp"
#include "cli/terminal/console.hpp"
#include "cli/tools/random.hpp"
#include "cli/tools/tolerance.hpp"
#include "distattn/convert.hpp"
#include "distattn/index.hpp"
#include "distattn/registry.hpp"
#include "distattn/serving.hpp"

namespace distattn::cli {
namespace {

/// Not a number is worse than any.
double worse(double a, double b) { return a >= b || a != a ? a : b; }

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

Problem serving_problem(const ProblemOptions& options, const ServingMix& mix) {
  Problem problem;
  problem.heads = static_cast<int>(options.heads.value_or(32));
  problem.kv_heads = static_cast<int>(options.kv_heads.value_or(options.heads ? problem.heads : 8));
  problem.head_dim = static_cast<int>(options.head_dim.value_or(128));
  problem.value_dim = static_cast<int>(options.value_dim.value_or(problem.head_dim));
  problem.dtype = options.dtype.value_or(DType::bf16);
  problem.wire = problem.accumulator();
  problem.seq_q = problem.seq_kv = 1;
  for (const MixedRequest& request : mix.requests) {
    problem.seq_q = std::max(problem.seq_q, request.queries);
    problem.seq_kv = std::max(problem.seq_kv, request.keys);
  }
  problem.mask = causal_mask();
  check(problem);
  return problem;
}

/// Tokens that are dealt to a rank at a time: those of a page unless a layout says it.
std::int64_t dealt_block(const ScheduleOptions& options, std::int64_t page) {
  if (options.layout.empty()) return page > 0 ? page : 1;
  const std::optional<Layout> layout = layout_named(options.layout);
  if (layout && layout->kind == LayoutKind::striped) return layout->block;
  refuse(fmt::format("--layout {} with --serving (caches that grow in place are dealt out in blocks): give striped:B",
                     options.layout));
}

/// What a token's keys and values, of all heads, take.
std::int64_t token_bytes(const Problem& problem) {
  return problem.kv_heads * (problem.head_dim + problem.value_dim) * static_cast<std::int64_t>(size_of(problem.dtype));
}

/// One rank's requests, cache and results.
class ServedRank {
 public:
  ServedRank(const Problem& problem, const ServingMix& mix, const Dealing& dealing, Rank rank, std::int64_t page,
             std::uint64_t seed)
      : problem_(problem), dealing_(dealing), rank_(rank), page_(page), seed_(seed) {
    for (std::size_t r = 0; r < mix.requests.size(); ++r) {
      const Rank owner = static_cast<Rank>(r) % dealing.ranks;
      requests_.push_back({mix.requests[r].keys, mix.requests[r].queries, owner});
      longest_ = std::max(longest_, dealing.stored(mix.requests[r].keys, rank));
      if (owner == rank) queries_ += mix.requests[r].queries;
    }
    const auto count = std::ssize(requests_);
    rows_ = count * longest_;
    if (page > 0) {
      width_ = ceil_div(longest_, page);
      place_pages();
    }
    k_ = Bytes(index(rows_) * row_bytes(problem.head_dim));
    v_ = Bytes(index(rows_) * row_bytes(problem.value_dim));
    fill_cache();
    q_ = Bytes(index(queries_ * problem.heads * problem.head_dim) * size_of(problem.dtype));
    fill_normal(seed, RandomTensor::q, first_query(), queries_ * problem.heads * problem.head_dim, problem.dtype,
                q_.data());
    o_.resize(index(queries_ * problem.heads * problem.value_dim));
  }

  ServingCall call() {
    ServingCall call;
    call.requests = requests_;
    call.q = dense_view(q_.data(), problem_.dtype, 1, queries_, problem_.heads, problem_.head_dim);
    call.o = dense_view(o_.data(), 1, queries_, problem_.heads, problem_.value_dim);
    const std::int64_t tokens = page_ > 0 ? page_ : longest_, sequences = rows_ / std::max<std::int64_t>(1, tokens);
    call.k = dense_view(k_.data(), problem_.dtype, sequences, tokens, problem_.kv_heads, problem_.head_dim);
    call.v = dense_view(v_.data(), problem_.dtype, sequences, tokens, problem_.kv_heads, problem_.value_dim);
    call.pages = pages_;
    call.pages_a_request = width_;
    return call;
  }

  /// The largest relative error of the last query of a request that the rank owns. Each is judged by itself: results of
  /// short requests are so much larger that a wrong one of a long request would not show next to them.
  double error() const {
    double worst = 0;
    std::int64_t query = 0;
    for (std::size_t r = 0; r < requests_.size(); ++r) {
      if (requests_[r].owner != rank_) continue;
      query += requests_[r].queries;
      worst = worse(worst, error_of(r, query - 1));
    }
    return worst;
  }

 private:
  std::size_t row_bytes(int dim) const { return index(problem_.kv_heads * dim) * size_of(problem_.dtype); }
  /// Where random numbers of the rank's queries begin: no two ranks have the same.
  std::int64_t first_query() const { return rank_ * (std::int64_t{1} << 32); }
  /// The same of a request's keys or values.
  static std::int64_t first_number(std::size_t request, std::int64_t token, std::int64_t width) {
    return (static_cast<std::int64_t>(request) << 40) + token * width;
  }

  /// In an order of chance, as caches have after a while.
  void place_pages() {
    const auto count = std::ssize(requests_) * width_;
    pages_.resize(index(count));
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), std::mt19937_64(seed_));
    rows_ = count * page_;
  }
  std::int64_t row_of(std::size_t request, std::int64_t stored) const {
    const auto r = static_cast<std::int64_t>(request);
    if (page_ == 0) return r * longest_ + stored;
    return pages_[index(r * width_ + stored / page_)] * page_ + stored % page_;
  }
  void fill_cache() {
    for (std::size_t r = 0; r < requests_.size(); ++r) {
      std::int64_t stored = 0;
      for (std::int64_t token = 0; token < requests_[r].keys; ++token) {
        if (dealing_.owner(token) != rank_) continue;
        const auto row = index(row_of(r, stored++));
        draw(RandomTensor::k, r, token, problem_.head_dim, &k_[row * row_bytes(problem_.head_dim)]);
        draw(RandomTensor::v, r, token, problem_.value_dim, &v_[row * row_bytes(problem_.value_dim)]);
      }
    }
  }
  void draw(RandomTensor tensor, std::size_t request, std::int64_t token, int dim, std::byte* into) const {
    const std::int64_t width = problem_.kv_heads * dim;
    fill_normal(seed_, tensor, first_number(request, token, width), width, problem_.dtype, into);
  }
  std::vector<double> drawn(RandomTensor tensor, std::size_t request, std::int64_t token, int dim) const {
    Bytes row(row_bytes(dim));
    draw(tensor, request, token, dim, row.data());
    std::vector<double> numbers(index(problem_.kv_heads * dim));
    convert(row.data(), problem_.dtype, reinterpret_cast<std::byte*>(numbers.data()), DType::fp64, std::ssize(numbers));
    return numbers;
  }

  /// A query of the rank's, the last one of the request, against float64: each token is drawn anew, once for all heads.
  double error_of(std::size_t request, std::int64_t query) const {
    const auto heads = index(problem_.heads), dim = index(problem_.head_dim);
    const auto value_dim = index(problem_.value_dim), first = index(query) * heads;
    std::vector<double> q(heads * dim), o(heads * value_dim), top(heads, -INFINITY), sum(heads);
    convert(q_.data() + first * dim * size_of(problem_.dtype), problem_.dtype, reinterpret_cast<std::byte*>(q.data()),
            DType::fp64, std::ssize(q));
    for (std::int64_t token = 0; token < requests_[request].keys; ++token) {
      const std::vector<double> keys = drawn(RandomTensor::k, request, token, problem_.head_dim);
      const std::vector<double> values = drawn(RandomTensor::v, request, token, problem_.value_dim);
      for (std::size_t head = 0; head < heads; ++head) {
        const auto kv = head / index(problem_.heads_per_kv());
        const double product = std::inner_product(&q[head * dim], &q[head * dim] + dim, &keys[kv * dim], 0.0);
        const double score = product * problem_.softmax_scale(), before = top[head];
        top[head] = std::max(before, score);
        const double keep = std::exp(before - top[head]), weight = std::exp(score - top[head]);
        sum[head] = sum[head] * keep + weight;
        for (std::size_t x = 0; x < value_dim; ++x) {
          double& number = o[head * value_dim + x];
          number = number * keep + weight * values[kv * value_dim + x];
        }
      }
    }
    double wrong = 0, right = 0;
    for (std::size_t i = 0; i < o.size(); ++i) {
      const double exact = o[i] / sum[i / value_dim], error = static_cast<double>(o_[first * value_dim + i]) - exact;
      wrong += error * error;
      right += exact * exact;
    }
    return std::sqrt(wrong / right);
  }

  const Problem& problem_;
  const Dealing dealing_;
  const Rank rank_;
  const std::int64_t page_;
  const std::uint64_t seed_;
  std::vector<ServedRequest> requests_;
  std::int64_t longest_ = 1, queries_ = 0, rows_ = 0, width_ = 0;
  std::vector<std::int32_t> pages_;
  Bytes k_, v_, q_;
  std::vector<float> o_;
};

/// What the ranks of one process have seen.
struct Seen {
  std::vector<std::vector<double>> seconds;  ///< by rank, of its calls
  std::vector<double> errors;                ///< by rank
};

Seen serve(World& world, const Problem& problem, const ServingRequest& serving, const BenchRequest& request,
           const std::string& backend, const DeviceOptions& device_options, std::int64_t block) {
  const auto here = index(world.in_process() ? world.size() : 1);
  Seen seen{std::vector<std::vector<double>>(here), std::vector<double>(here)};
  world.run([&](Rank rank, Transport& transport, Bootstrap& bootstrap) {
    const auto device = make_device(backend, device_options);
    Serving handle(problem, block, *device, transport);
    ServedRank served(problem, serving.mix, handle.dealing(), rank, serving.page, request.problem.common.seed);
    const ServingCall call = served.call();
    const auto at = index(rank - world.first());
    for (int i = 0; i < request.warmups + request.runs; ++i) {
      bootstrap.barrier();
      const auto begin = Clock::now();
      handle.attend(call);
      if (i >= request.warmups) seen.seconds[at].push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    if (request.check) seen.errors[at] = served.error();
  });
  return seen;
}

/// By call: of the slowest rank.
std::vector<double> slowest(World& world, const Seen& seen) {
  std::vector<double> here = seen.seconds.front();
  for (const auto& rank : seen.seconds) {
    for (std::size_t i = 0; i < here.size(); ++i) here[i] = std::max(here[i], rank[i]);
  }
  const std::vector<double> all = all_gather<double>(world, here);
  for (std::size_t i = 0; i < all.size(); ++i) here[i % here.size()] = std::max(here[i % here.size()], all[i]);
  return here;
}

void add_errors(World& world, const Problem& problem, const Seen& seen, ServingRow& row) {
  const std::vector<double> all = all_gather<double>(world, seen.errors);
  row.max_error = std::accumulate(all.begin(), all.end(), 0.0, worse);
  row.ok = row.max_error <= tolerance(problem, row.ranks);
}

ServingRow measure(World& world, const Problem& problem, const ServingRequest& serving, const BenchRequest& request,
                   Peaks& peaks) {
  const std::string backend = request.launch.backend.empty() ? "cpu" : request.launch.backend;  // GPUs read no caches
  const int threads = choose_threads(request.launch.device.threads, world);
  ServingRow row;
  row.mix = serving.mix.name;
  row.backend = backend;
  row.ranks = world.size();
  row.threads = threads;
  row.heads = problem.heads;
  row.kv_heads = problem.kv_heads;
  row.head_dim = problem.head_dim;
  row.value_dim = problem.value_dim;
  row.dtype = problem.dtype;
  row.page = serving.page;
  row.block = dealt_block(request.schedule, serving.page);
  row.runs = request.runs;
  double pairs = 0;
  for (const MixedRequest& each : serving.mix.requests) {
    ++row.requests;
    row.queries += each.queries;
    row.keys += each.keys;
    row.longest = std::max(row.longest, each.keys);
    pairs += static_cast<double>(each.queries) *
             (static_cast<double>(each.keys) - static_cast<double>(each.queries - 1) / 2);
  }
  const double bytes = static_cast<double>(row.keys) * static_cast<double>(token_bytes(problem));
  require_memory(
      world, [&](int ranks) { return 1.1 * bytes * ranks / world.size(); }, "this mix");
  peaks.measure(world, backend, problem.dtype, threads);
  const Seen seen = serve(world, problem, serving, request, backend, request.launch.device_options(threads), row.block);
  const Peak peak = peaks.measure(world, backend, problem.dtype, threads);
  std::vector<double> seconds = slowest(world, seen);
  std::sort(seconds.begin(), seconds.end());
  row.least_s = seconds.front();
  row.median_s = seconds[seconds.size() / 2];
  row.tokens_per_s = static_cast<double>(row.queries) / row.median_s;
  row.read_bytes_per_s = bytes / row.median_s;
  row.peak_bytes_per_s = peak.bytes_per_s;
  row.read_share = row.read_bytes_per_s / peak.bytes_per_s;
  row.gflops = 2 * pairs * problem.heads * (problem.head_dim + problem.value_dim) / row.median_s / 1e9;
  row.peak_gflops = peak.flops_per_s / 1e9;
  row.share = row.gflops / row.peak_gflops;
  if (request.check) add_errors(world, problem, seen, row);
  return row;
}

}  // namespace

std::vector<ServingRow> serving_rows(World& launched, const BenchRequest& request, const ServingRequest& serving,
                                     Peaks& peaks) {
  std::vector<ServingRow> rows;
  Progress progress;
  for (const ProblemOptions& shape : combinations(request.problem)) {
    const Problem problem = serving_problem(shape, serving.mix);
    for (const int ranks : rank_counts(launched, request.schedule.ranks)) {
      progress.show(fmt::format("{} on {} ranks, {}", serving.mix.name, ranks, name_of(problem.dtype)));
      WorldOf world(launched, ranks);
      rows.push_back(measure(world.get(), problem, serving, request, peaks));
    }
  }
  progress.done();
  return rows;
}

}  // namespace distattn::cli

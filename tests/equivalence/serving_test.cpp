/// Requests of any lengths, in caches of any kind over any number of ranks, against float64.

#include <cmath>
#include <mutex>
#include <random>

#include "catch.hpp"
#include "cli/tools/tolerance.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"
#include "equivalence/serving_case.hpp"
#include "tests/support/sanitized.hpp"

using namespace distattn;
using namespace distattn::test;

namespace {

std::unique_ptr<Device> device_of(const std::string& backend, int threads) {
  DeviceOptions options;
  options.threads = threads;
  return make_device(backend, options);
}

/// Those that read caches.
std::vector<std::string> cache_readers() {
  std::vector<std::string> names;
  for (const BackendInfo& info : list_backends()) {
    if (info.kind != BackendKind::device || !info.usable) continue;
    if (device_of(info.name, 1)->cache_reader() != nullptr) names.push_back(info.name);
  }
  return names;
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
  for (const int ranks : cases_to_run<int>({1, 2, 3, 4, 5, 6, 7, 8}, 2)) {
    for (const DType dtype : cases_to_run<DType>({DType::bf16, DType::fp32, DType::fp16})) {
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
  for (const CacheForm& form : cases_to_run<CacheForm>({{16, 16}, {1, 0}, {5, 64}})) {
    for (const int ranks : cases_to_run<int>({3, 1})) {
      for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
        const Mix mix(serving_problem(dtype, 700, 200), ranks, awkward, 7);
        for (const std::string& backend : cache_readers()) {
          if (backend != "reference") serve(mix, {backend, ranks, 2, form});
        }
      }
    }
  }
  for (const std::string& backend : cache_readers()) {
    if (backend == "cpu" || backend == "kokkos") continue;  // which have no fp64
    serve(Mix(serving_problem(DType::fp64, 700, 200), 2, awkward, 7), {backend, 2, 1, {4, 16}});
  }
}

TEST_CASE("serving has windows, caps, sinks and, on one rank, a bias of positions") {
  for (const std::string& backend : cache_readers()) {
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

TEST_CASE("neither threads nor pages change a bit of what is served", "[again]") {
  for (const std::string& backend : cache_readers()) {
    if (backend == "reference") continue;  // in a second what others do in milliseconds
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      for (const int ranks : {1, 2}) {
        const Mix mix(serving_problem(dtype, 5000, 200), ranks, Lengths{{5000, 1}, {2500, 9}, {900, 70}, {3, 2}}, 3);
        const auto first = serve(mix, {backend, ranks, 1, {16, 0}});
        CHECK(first == serve(mix, {backend, ranks, 3, {16, 0}}));
        CHECK(first == serve(mix, {backend, ranks, 1, {16, 16}}));
        CHECK(first == serve(mix, {backend, ranks, 2, {16, 80}}));
      }
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
    ServingCall odd = paged.call;
    odd.k.shape[1] = odd.v.shape[1] = 15;
    CHECK(refused(odd, "a cache in pages of 15 tokens (a page has 16 to 4096, a multiple of 16)"));
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

TEST_CASE("ranks that serve different lists, or with different handles, find out") {
  struct Served {
    Lengths lengths = {{40, 1}};
    std::int64_t block = 1;
    Problem problem = serving_problem(DType::fp32, 100, 8);
  };
  const auto serve_with = [](const Served& second) {
    run_ranks(2, [&](Rank rank, Transport& transport) {
      const Served served = rank == 0 ? Served() : second;
      const auto device = device_of("cpu", 1);
      Serving serving(served.problem, served.block, *device, transport);
      const Mix mix(served.problem, 2, served.lengths, 5);
      RankTensors tensors(mix, {served.block, 0}, rank, 2, DType::fp32, 1);
      serving.attend(tensors.call);
    });
  };
  CHECK_THROWS_WITH(serve_with({.lengths = {{41, 1}}}), contains_text("serves other requests"));
  CHECK_THROWS_WITH(serve_with({.lengths = {}}), contains_text("rank 0"));
  const char* const another = "a handle for another problem, or other blocks";
  CHECK_THROWS_WITH(serve_with({.block = 2}), contains_text(another));
  Served changed;
  changed.problem.scores.softcap = 1;
  CHECK_THROWS_WITH(serve_with(changed), contains_text(another));
  changed = {};
  changed.problem.mask.left = 10;
  CHECK_THROWS_WITH(serve_with(changed), contains_text(another));
  CHECK_NOTHROW(serve_with({}));
}

TEST_CASE("a rank that owns nothing and stores nothing binds tensors of no rows, however they lie") {
  run_ranks(2, [&](Rank rank, Transport& transport) {
    const Problem problem = serving_problem(DType::fp32, 100, 8);
    const auto device = device_of("cpu", 1);
    Serving serving(problem, 64, *device, transport);
    const Mix mix(problem, 1, Lengths{{40, 1}}, 5);  // rank 0 owns it and stores its keys
    RankTensors tensors(mix, {64, 0}, rank, 2, DType::fp32, 1);
    if (rank == 1) {
      for (TensorView* const view : {&tensors.call.o, &tensors.call.lse}) view->strides = {};
      for (ConstTensorView* const view : {&tensors.call.q, &tensors.call.k, &tensors.call.v}) view->strides = {};
      tensors.call.k.shape[1] = tensors.call.v.shape[1] = 0;
      tensors.call.k.data = tensors.call.v.data = nullptr;
    }
    serving.attend(tensors.call);
    if (rank == 0) CHECK(errors_of(mix, tensors, rank).first < 1e-5);
  });
}

TEST_CASE("keys that hold their values are refused: a cache has both") {
  run_ranks(1, [&](Rank, Transport& transport) {
    Problem problem = serving_problem(DType::fp32, 100, 8);
    problem.shared_kv = true;
    problem.value_dim = problem.head_dim;
    const auto device = device_of("cpu", 1);
    CHECK_THROWS_WITH(Serving(problem, 1, *device, transport), contains_text("shared_kv"));
  });
}

/// The system refuses a thread: whoever asked for it ends with an error, those that have started end too.

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>

#include "catch.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"
#include "kernels/team.hpp"
#include "tests/support/sharded.hpp"

using namespace distattn;

namespace {

std::atomic<int> threads_left{1 << 30};

/// From now on the system gives `count` more threads.
struct FewThreads {
  explicit FewThreads(int count) { threads_left = count; }
  ~FewThreads() { threads_left = 1 << 30; }
};

Problem problem_of(std::int64_t tokens) {
  Problem problem;
  problem.seq_q = problem.seq_kv = tokens;
  problem.heads = problem.kv_heads = 2;
  problem.head_dim = problem.value_dim = 8;
  problem.mask = causal_mask();
  return problem;
}

}  // namespace

// Instead of the C library's, for the whole program.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                              void* argument) {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static Create* const create = reinterpret_cast<Create*>(::dlsym(RTLD_NEXT, "pthread_create"));
  return threads_left.fetch_sub(1) > 0 ? create(thread, attributes, start, argument) : EAGAIN;
}

TEST_CASE("a team whose threads are refused ends those that have started") {
  for (const int given : {0, 1, 5}) {
    const FewThreads few(given);
    CHECK_THROWS_WITH(kernels::Team(8), contains_text(std::to_string(given + 1) + " of 8 threads"));
  }
  kernels::Team team(8);
  std::atomic<int> calls{0};
  team.run([&](int) { ++calls; });
  CHECK(calls == 8);
}

TEST_CASE("ranks whose threads are refused end with an error, wherever that happens") {
  const Problem problem = problem_of(40);
  ScheduleRequest options;
  options.schedule = "zigzag-ring";
  options.node_size = 1;  // a far lane
  const auto plan = std::make_shared<const AttentionPlan>(problem, 2, options);
  const auto make_all = [&] {
    run_ranks(2, [&](Rank, Transport& transport) {
      const auto device = make_device("reference", {.threads = 2, .local_ranks = 2});
      const Attention attention(plan, *device, transport);
    });
  };
  int refusals = 0;
  for (int given = 0;; ++given) {
    const FewThreads few(given);
    try {
      make_all();
      break;
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::environment);
      ++refusals;
    }
  }
  CHECK(refusals >= 5);  // a rank's own thread and its helper's, and a lane's
}

TEST_CASE("what many threads would plan is planned by those that there are") {
  const Problem problem = problem_of(256);
  ScheduleRequest options;
  options.schedule = "ring";
  const FewThreads none(0);
  CHECK_NOTHROW(AttentionPlan(problem, 128, options));
}

TEST_CASE("a rank that gets no thread for the control channel says so") {
  const auto path = std::filesystem::temp_directory_path() / ("distattn-refused-" + std::to_string(::getpid()));
  const auto meet = [&] { make_bootstrap("file", {path.string(), 1, 20}); };
  bool no_channel = false;
  for (int threads = 0; threads < 4; ++threads) {
    const FewThreads few(threads);
    try {
      meet();
    } catch (const Error& error) {  // whoever asks first beyond them
      CHECK_THAT(error.what(), contains_text("gets no thread to"));
      no_channel = no_channel || std::string(error.what()).starts_with("rank 0 gets no thread to talk to other ranks");
    }
  }
  CHECK(no_channel);
  CHECK_NOTHROW(meet());
}

/// The C API's communicators: threads, a caller's callbacks, groups of ranks, launchers.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "attend.hpp"
#include "catch.hpp"
#include "core/c_api/handles.hpp"

using namespace distattn::test;

namespace {

/// Mail between ranks that are threads: a queue for each lane and pair.
struct Post {
  explicit Post(int ranks) : size(ranks), queues(static_cast<std::size_t>(2 * ranks * ranks)) {}
  std::deque<std::vector<char>>& queue(int lane, int from, int to) {
    return queues[static_cast<std::size_t>((lane * size + from) * size + to)];
  }
  int size;
  std::mutex mutex;
  std::vector<std::deque<std::vector<char>>> queues;
};

struct PostEnd {
  Post* post;
  int rank;
};

int exchange_by_post(void* user, std::int32_t lane, const distattn_transfer* sends, std::size_t send_count,
                     const distattn_transfer* receives, std::size_t receive_count) {
  const auto& [post, rank] = *static_cast<PostEnd*>(user);
  {
    const std::lock_guard lock(post->mutex);
    for (const distattn_transfer* s = sends; s != sends + send_count; ++s) {
      const char* data = static_cast<const char*>(s->data);
      post->queue(lane, rank, s->peer).emplace_back(data, data + s->bytes);
    }
  }
  for (const distattn_transfer* r = receives; r != receives + receive_count;) {
    std::unique_lock lock(post->mutex);
    auto& queue = post->queue(lane, r->peer, rank);
    if (queue.empty()) {
      lock.unlock();
      std::this_thread::yield();
      continue;
    }
    if (queue.front().size() != r->bytes) return 1;
    std::memcpy(r->data, queue.front().data(), r->bytes);
    queue.pop_front();
    ++r;
  }
  return 0;
}

}  // namespace

TEST_CASE("attention over a caller's callbacks equals float64") {
  constexpr int ranks = 3;
  Post post(ranks);
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      PostEnd end{&post, rank};
      distattn_callbacks callbacks = DISTATTN_CALLBACKS_INIT;
      callbacks.rank = rank;
      callbacks.size = ranks;
      callbacks.user = &end;
      callbacks.exchange = exchange_by_post;
      distattn_comm* comm = nullptr;
      distattn_options options = options_for("balanced");
      if (distattn_comm_from_callbacks(&callbacks, &comm) == DISTATTN_OK && attend(&options, comm) == DISTATTN_OK) {
        ++good;
      }
      distattn_comm_free(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == ranks);
}

TEST_CASE("a failed exchange is a peer's failure that names rank and step") {
  distattn_callbacks callbacks = DISTATTN_CALLBACKS_INIT;
  callbacks.size = 2;
  callbacks.exchange = [](void*, std::int32_t, const distattn_transfer*, std::size_t, const distattn_transfer*,
                          std::size_t) { return 7; };
  distattn_comm* comm = nullptr;
  REQUIRE(distattn_comm_from_callbacks(&callbacks, &comm) == DISTATTN_OK);
  CHECK(distattn_comm_size(comm) == 2);
  distattn_options options = options_for("ring");
  CHECK(attend(&options, comm) == DISTATTN_PEER);
  CHECK_THAT(message(), contains_text("rank 0") && contains_text("7"));
  distattn_comm_free(comm);
}

TEST_CASE("a call that failed ends every handle on its communicator, though the next exchange would go through") {
  int calls = 0;
  distattn_callbacks callbacks = DISTATTN_CALLBACKS_INIT;
  callbacks.size = 2;
  callbacks.user = &calls;
  callbacks.exchange = [](void* user, std::int32_t, const distattn_transfer*, std::size_t, const distattn_transfer*,
                          std::size_t) { return ++*static_cast<int*>(user) == 1 ? 7 : 0; };
  distattn_comm* comm = nullptr;
  REQUIRE(distattn_comm_from_callbacks(&callbacks, &comm) == DISTATTN_OK);
  distattn_options options = options_for("ring");
  for (int again = 0; again < 2; ++again) {
    CHECK(attend(&options, comm) == DISTATTN_PEER);
    CHECK_THAT(message(), contains_text("the exchange callback returned 7"));
  }
  CHECK(calls == 1);
  distattn_comm_free(comm);
}

TEST_CASE("a rank that will not call ends those that wait for it") {
  const auto body = [](void*, distattn_comm* comm) {
    distattn_options options = options_for("ring");
    if (distattn_comm_rank(comm) != 1) {
      CHECK(attend(&options, comm) == DISTATTN_INTERRUPTED);
      CHECK_THAT(message(), contains_text("rank 1") && contains_text("out of tensors"));
      return DISTATTN_OK;
    }
    const distattn_problem problem = small_problem();
    distattn_attention* attention = nullptr;
    REQUIRE(distattn_attention_create(&problem, &options, comm, &attention) == DISTATTN_OK);
    const distattn_tensors none = DISTATTN_TENSORS_INIT;
    CHECK(distattn_forward(attention, &none) == DISTATTN_USAGE);
    CHECK(distattn_comm_abort(comm, "out of tensors") == DISTATTN_OK);
    CHECK(distattn_comm_abort(comm, "a second reason") == DISTATTN_OK);
    distattn_attention_free(attention);
    CHECK(attend(&options, comm) == DISTATTN_INTERRUPTED);
    CHECK_THAT(message(), contains_text("out of tensors"));
    return DISTATTN_OK;
  };
  CHECK(distattn_run_ranks(3, body, nullptr) == DISTATTN_OK);  // no body failed
  CHECK(distattn_comm_abort(nullptr, nullptr) == DISTATTN_USAGE);
}

TEST_CASE("ranks that wait for one that has returned find out") {
  const auto body = [](void*, distattn_comm* comm) {
    distattn_options options = options_for("ring");
    if (distattn_comm_rank(comm) != 1) {
      CHECK(attend(&options, comm) == DISTATTN_PEER);
      CHECK_THAT(message(), contains_text("rank 1 has ended its part of the run"));
      return DISTATTN_OK;
    }
    const distattn_problem problem = small_problem();
    distattn_attention* attention = nullptr;
    REQUIRE(distattn_attention_create(&problem, &options, comm, &attention) == DISTATTN_OK);
    distattn_attention_free(attention);
    return DISTATTN_OK;
  };
  CHECK(distattn_run_ranks(3, body, nullptr) == DISTATTN_OK);
}

TEST_CASE("a communicator that was ended ends whoever waits for its handles' passes") {
  const auto body = [](void*, distattn_comm* comm) {
    const distattn_problem problem = small_problem();
    distattn_attention* attention = nullptr;
    REQUIRE(distattn_attention_create(&problem, nullptr, comm, &attention) == DISTATTN_OK);
    CHECK(distattn_attention_wait(attention) == DISTATTN_OK);
    CHECK(distattn_comm_abort(comm, "enough") == DISTATTN_OK);
    CHECK(distattn_attention_wait(attention) == DISTATTN_INTERRUPTED);
    CHECK(distattn_attention_check(attention) == DISTATTN_INTERRUPTED);
    distattn_attention_free(attention);
    return DISTATTN_OK;
  };
  CHECK(distattn_run_ranks(1, body, nullptr) == DISTATTN_OK);
}

TEST_CASE("a handle of the process that was forked is refused") {
  const auto body = [](void*, distattn_comm* comm) {
    const distattn_problem problem = small_problem();
    distattn_attention* attention = nullptr;
    REQUIRE(distattn_attention_create(&problem, nullptr, comm, &attention) == DISTATTN_OK);
    const pid_t child = fork();
    if (child == 0) {
      const distattn_tensors none = DISTATTN_TENSORS_INIT;
      const bool refused = distattn_forward(attention, &none) == DISTATTN_USAGE;
      _exit(refused && std::strstr(distattn_message(), "a fork has none of its threads") != nullptr ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    distattn_attention_free(attention);
    return DISTATTN_OK;
  };
  CHECK(distattn_run_ranks(1, body, nullptr) == DISTATTN_OK);
}

TEST_CASE("a communicator of one rank is ended too, with what it is a group of") {
  const auto body = [](void*, distattn_comm* whole) {
    const std::int32_t self = distattn_comm_rank(whole);
    distattn_comm* alone = nullptr;
    REQUIRE(distattn_comm_subgroup(whole, &self, 1, &alone) == DISTATTN_OK);
    distattn_options options = options_for("ring");
    CHECK(attend(&options, alone) == DISTATTN_OK);
    CHECK(distattn_comm_abort(alone, "enough") == DISTATTN_OK);
    for (distattn_comm* const ended : {alone, whole}) {
      CHECK(attend(&options, ended) == DISTATTN_INTERRUPTED);
      CHECK_THAT(message(), contains_text("enough"));
    }
    distattn_comm_free(alone);
    return DISTATTN_OK;
  };
  CHECK(distattn_run_ranks(1, body, nullptr) == DISTATTN_OK);
}

TEST_CASE("a communicator of callbacks is ended by theirs") {
  std::string said;
  distattn_callbacks callbacks = DISTATTN_CALLBACKS_INIT;
  callbacks.size = 2;
  callbacks.user = &said;
  callbacks.exchange = [](void*, std::int32_t, const distattn_transfer*, std::size_t, const distattn_transfer*,
                          std::size_t) { return 0; };
  callbacks.abort = [](void* user, const char* message) { *static_cast<std::string*>(user) = message; };
  distattn_comm* comm = nullptr;
  REQUIRE(distattn_comm_from_callbacks(&callbacks, &comm) == DISTATTN_OK);
  CHECK(distattn_comm_abort(comm, nullptr) == DISTATTN_OK);
  CHECK_THAT(said, contains_text("ended the communicator"));
  distattn_comm_free(comm);
}

TEST_CASE("the status of the body that failed is returned, a caller's own too") {
  for (const int own : {1, 7, 200, static_cast<int>(DISTATTN_TIMEOUT)}) {
    std::atomic<int> status = own;
    const auto body = [](void* user, distattn_comm* comm) {
      if (distattn_comm_rank(comm) == 1)
        return static_cast<distattn_status>(static_cast<std::atomic<int>*>(user)->load());
      distattn_options options = options_for("ring");
      CHECK(attend(&options, comm) == DISTATTN_PEER);
      return DISTATTN_PEER;
    };
    CHECK(distattn_run_ranks(2, body, &status) == own);
    CHECK_THAT(message(), contains_text("rank 1 returned status " + std::to_string(own)));
  }
}

TEST_CASE("what a function that fails was to make is null") {
  int somewhere = 0;
  auto* comm = reinterpret_cast<distattn_comm*>(&somewhere);
  CHECK(distattn_comm_from_callbacks(nullptr, &comm) == DISTATTN_USAGE);
  CHECK(comm == nullptr);
  comm = reinterpret_cast<distattn_comm*>(&somewhere);
  distattn_launch launch = DISTATTN_LAUNCH_INIT;
  launch.timeout_s = -1;
  CHECK(distattn_comm_from_launcher(&launch, &comm) == DISTATTN_USAGE);
  CHECK(comm == nullptr);
  comm = reinterpret_cast<distattn_comm*>(&somewhere);
  CHECK(distattn_comm_subgroup(nullptr, nullptr, 0, &comm) == DISTATTN_USAGE);
  CHECK(comm == nullptr);
  auto* json = reinterpret_cast<char*>(&somewhere);
  CHECK(distattn_plan_json(nullptr, nullptr, 1, nullptr, &json) == DISTATTN_USAGE);
  CHECK(json == nullptr);
}

TEST_CASE("groups of ranks attend side by side") {
  const auto body = [](void*, distattn_comm* whole) {
    const std::vector<std::int32_t> odd = {3, 1}, even = {0, 4, 2};
    const std::vector<std::int32_t>& members = distattn_comm_rank(whole) % 2 == 1 ? odd : even;
    distattn_comm* group = nullptr;
    REQUIRE(distattn_comm_subgroup(whole, members.data(), members.size(), &group) == DISTATTN_OK);
    CHECK(distattn_comm_size(group) == static_cast<std::int32_t>(members.size()));
    CHECK(members[static_cast<std::size_t>(distattn_comm_rank(group))] == distattn_comm_rank(whole));
    CHECK(group->local_rank == distattn_comm_rank(whole));
    CHECK(group->local_ranks == 5);
    distattn_options options = options_for(members == odd ? "ring" : "balanced");
    const distattn_status status = attend(&options, group);
    distattn_comm_free(group);
    CHECK(distattn_comm_subgroup(whole, members.data(), 0, &group) == DISTATTN_USAGE);
    CHECK(distattn_comm_subgroup(whole, members.data(), static_cast<std::size_t>(-1), &group) == DISTATTN_USAGE);
    const std::int32_t twice[] = {distattn_comm_rank(whole), distattn_comm_rank(whole)};
    CHECK(distattn_comm_subgroup(whole, twice, 2, &group) == DISTATTN_USAGE);
    return status;
  };
  CHECK(distattn_run_ranks(5, body, nullptr) == DISTATTN_OK);
}

TEST_CASE("a process without a launcher is alone") {
  distattn_comm* comm = nullptr;
  distattn_launch launch = DISTATTN_LAUNCH_INIT;
  launch.bootstrap = "inproc";
  REQUIRE(distattn_comm_from_launcher(&launch, &comm) == DISTATTN_OK);
  CHECK(distattn_comm_size(comm) == 1);
  distattn_options options = options_for("ring");
  CHECK(attend(&options, comm) == DISTATTN_OK);
  distattn_comm_free(comm);

  launch.ranks = 2;
  CHECK(distattn_comm_from_launcher(&launch, &comm) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("mpirun"));
  launch.ranks = -1;
  CHECK(distattn_comm_from_launcher(&launch, &comm) == DISTATTN_USAGE);
  launch.ranks = 0;
  launch.timeout_s = -1;
  CHECK(distattn_comm_from_launcher(&launch, &comm) == DISTATTN_USAGE);
  launch.timeout_s = 1;
  launch.ranks = 2;
  for (const char* bootstrap : {"pigeon", "file", "file:"}) {
    launch.bootstrap = bootstrap;
    CHECK(distattn_comm_from_launcher(&launch, &comm) == DISTATTN_USAGE);
  }
}

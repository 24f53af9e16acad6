/// How the NCCL transport ends: well, or because of a rank, a link or a library.

#include <chrono>
#include <thread>

#include "backends/nccl/library.hpp"
#include "backends/streams/event.hpp"
#include "nccl/runs.hpp"
#include "nccl/standin.hpp"
#include "simt/queue.hpp"
#include "tests/support/hand_made.hpp"

namespace {

using namespace distattn;
using test::failure_of;
using test::far_transports;
using test::of_standin;
using test::run_of;
using test::seed;
using test::ShardedRun;

/// Rank 0 sends to both others in step 0; rank 1, once it has that, waits for rank 0's step 1.
RankProgram two_sends_and_one(const Outline& outline, Rank rank) {
  test::ProgramWriter writer(outline);
  const BufferId buffer = writer.buffer(Value{ValueKind::query, 0, SegmentId{0}, -1});
  if (rank == 0) {
    writer.step(Lane::near, 0, {Send{buffer, 1}, Send{buffer, 2}});
    writer.step(Lane::near, 1, {Send{buffer, 1}});
  } else {
    for (int step = 0; step < 3 - rank; ++step) writer.step(Lane::near, step, {Recv{buffer, 0}});
  }
  return writer.take();
}

}  // namespace

TEST_CASE("communicators are ended in order where all is well, and aborted where not") {
  test::standin();
  const auto aborts = of_standin<decltype(standin_aborts)>("standin_aborts");
  const int before = aborts();
  CHECK(failure_of(run_of("ring", 3)) == "");
  CHECK(aborts() == before);
  of_standin<decltype(standin_fail)>("standin_fail")(1, 2, false);
  CHECK(failure_of(run_of("ring", 3)) != "");
  CHECK(aborts() > before);
}

TEST_CASE("a link that breaks ends all ranks") {
  test::standin();
  const auto fail = of_standin<decltype(standin_fail)>("standin_fail");
  for (const int group : {1, 4}) {
    fail(1, group, false);
    const std::string what = failure_of(run_of("ring", 3));
    CAPTURE(what);
    CHECK(what.find("rank ") != what.npos);
    CHECK(what.find("step ") != what.npos);
    CHECK(what.find("network error") != what.npos);
  }
  fail(0, 0, false);
  CHECK(failure_of(run_of("ring", 3)) == "");
}

TEST_CASE("a rank that cannot make a communicator ends all ranks") {
  test::standin();
  const auto refuse = of_standin<decltype(standin_refuse)>("standin_refuse");
  for (const auto& far : far_transports) {
    refuse(1);
    const std::string what = failure_of(run_of("ring", 3, {.seed = seed, .far = far}));
    refuse(-1);
    CAPTURE(what);
    CHECK(what.find("system error") != what.npos);
    CHECK(failure_of(run_of("ring", 3, {.seed = seed, .far = far})) == "");
  }
}

TEST_CASE("a rank that does not come is a timeout that names it") {
  test::standin();
  const auto fail = of_standin<decltype(standin_fail)>("standin_fail");
  fail(2, 2, true);
  const std::string what = failure_of(run_of("ring", 3, {.seed = seed, .missing = 2}));
  fail(0, 0, false);
  CHECK(what.find("rank 2 made no progress") != what.npos);
}

TEST_CASE("ranks between which nothing moves are a timeout, though all of them live") {
  test::standin();
  const auto fail = of_standin<decltype(standin_fail)>("standin_fail");
  fail(2, 2, true);
  const std::string what = failure_of(run_of("ring", 3, {.seed = seed, .timeout_s = 1.0}));
  fail(0, 0, false);
  CAPTURE(what);
  CHECK(what.find("made no progress for 1 s") != what.npos);
}

TEST_CASE("a row whose members do not hear of it is a timeout") {
  test::standin();
  const auto fail = of_standin<decltype(standin_fail)>("standin_fail");
  ShardedRun run = run_of("attention2d:2x3", 6, {.seed = seed, .timeout_s = 1.0});
  run.options.mode = Mode::gathered;
  fail(0, 1, true);
  const std::string what = failure_of(run);
  fail(0, 0, false);
  CAPTURE(what);
  CHECK(what.find("made no progress for 1 s") != what.npos);
}

TEST_CASE("a communicator that waits in its end for a rank that hangs holds nobody up") {
  test::standin();
  const auto hold_ends = of_standin<decltype(standin_hold_ends)>("standin_hold_ends");
  hold_ends(true);
  CHECK(failure_of(run_of("ring", 3)) == "");
  of_standin<decltype(standin_fail)>("standin_fail")(1, 2, false);
  const std::string what = failure_of(run_of("ring", 3));
  hold_ends(false);
  CHECK(what.find("network error") != what.npos);
}

TEST_CASE("a rank whose GPU computes for longer than the timeout is waited for") {
  const auto body = [](Rank rank, Transport& transport) {
    const Outline outline = test::block_outline(3, 4);
    const RankProgram program = two_sends_and_one(outline, rank);
    BufferTable buffers(outline, program, rank, MemorySpace::cuda,
                        test::own_gpu().allocate(slots_bytes(program) + 64, MemorySpace::cuda));
    const auto stream = test::own_gpu().make_stream(backends::StreamPriority::normal);
    if (rank == 2) {
      const auto compute = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1600)); };
      static_cast<simt::Queue*>(stream->handle())->submit(compute);
    }
    const Event computed(std::make_shared<backends::StreamEvent>(stream->mark(), std::make_shared<backends::Ending>(),
                                                                 nullptr, "a kernel"));
    std::vector<Event> exchanges;
    for (const Step& step : program.steps) exchanges.push_back(transport.submit(step, buffers, {&computed, 1}));
    transport.resting();
    for (const Event& exchange : exchanges) exchange.wait();
  };
  CHECK_NOTHROW(test::run_nccl_ranks(3, body, {.seed = seed, .timeout_s = 0.5}));
}

TEST_CASE("both lanes end where both wait for another rank") {
  test::standin();
  const auto fail = of_standin<decltype(standin_fail)>("standin_fail");
  for (const int group : {1, 2, 3, 4}) {
    ShardedRun run = run_of("ring", 4);
    run.options.node_size = 2;
    run.options.ahead = 1;
    fail(1, group, false);
    CAPTURE(group);
    CHECK(failure_of(run).find("network error") != std::string::npos);
  }
  fail(0, 0, false);
}

TEST_CASE("two ranks on one GPU are refused") {
  const std::string what = failure_of(run_of("ring", 2, {.seed = seed, .one_gpu = true}));
  CHECK(what.find("ranks 0 and 1 would share a GPU") != what.npos);
  CHECK(what.find("take transport ucx") != what.npos);
}

TEST_CASE("a library that is missing, or is not NCCL, is named") {
  const auto why = [](const std::string& name) -> std::string {
    try {
      backends::nccl::load_library(name);
      return "";
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::environment);
      return error.what();
    }
  };
  CHECK(why("libnccl-of-nobody.so.2").find("libnccl-of-nobody.so.2") != std::string::npos);
  CHECK(why("libc.so.6").find("ncclGetVersion") != std::string::npos);
}

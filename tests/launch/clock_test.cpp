/// Time in which the process is stopped, and calls that do not return.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "backends/patient_call.hpp"
#include "backends/running_clock.hpp"
#include "catch.hpp"
#include "distattn/error.hpp"
#include "distattn/thread.hpp"

using namespace distattn;
using namespace distattn::backends;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Steady = std::chrono::steady_clock;

namespace {

/// A child stops this process for a second, and lets it go on.
void stop_for_a_second() {
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t parent = ::getppid();
    ::kill(parent, SIGSTOP);
    ::usleep(1'000'000);
    ::kill(parent, SIGCONT);
    ::_exit(0);
  }
  REQUIRE(child > 0);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
}

}  // namespace

TEST_CASE("a stop does not count, and moments before and after it are told apart") {
  const RunningClock::Keeper keeper;
  const auto begin = RunningClock::now();
  const auto steady_begin = Steady::now();
  stop_for_a_second();
  const auto steady_end = Steady::now();
  const auto lived = RunningClock::now() - begin;
  const auto passed = steady_end - steady_begin;
  CHECK(passed >= milliseconds(1000));
  CHECK(passed - lived >= milliseconds(700));
  CHECK(RunningClock::at(steady_end) - RunningClock::at(steady_begin) <= passed - milliseconds(700));
  CHECK(RunningClock::at(steady_begin) - begin < milliseconds(200));
}

TEST_CASE("without anybody who needs it, the clock is the steady one") {
  const auto difference = [] { return RunningClock::now().time_since_epoch() - Steady::now().time_since_epoch(); };
  const auto before = difference();
  std::this_thread::sleep_for(milliseconds(400));
  CHECK(difference() - before < milliseconds(200));
  CHECK(before - difference() < milliseconds(200));
}

TEST_CASE("a call returns what it does, throws what it does, or is left behind") {
  const auto late = [] { return Error(ErrorKind::timeout, "late"); };
  const auto in = [](auto duration) { return RunningClock::now() + duration; };
  CHECK(call_before<int>(
            in(seconds(20)), "count", [] { return 7; }, late) == 7);
  CHECK_THROWS_WITH(call_before<int>(
                        in(seconds(20)), "fail", []() -> int { throw Error(ErrorKind::usage, "wrong"); }, late),
                    "wrong");
  // The thread of a call that has returned counts until it ends.
  const auto await_none = [] {
    for (int i = 0; i < 2000 && calls_left_behind() > 0; ++i) std::this_thread::sleep_for(milliseconds(5));
    return calls_left_behind() == 0;
  };
  CHECK(await_none());
  const auto over = std::make_shared<std::atomic<bool>>(false);
  const auto hang = [over] {
    while (!*over) std::this_thread::sleep_for(milliseconds(5));
    return 1;
  };
  CHECK_THROWS_WITH(call_before<int>(in(milliseconds(100)), "hang", hang, late), "late");
  CHECK(calls_left_behind() == 1);
  const auto fails_elsewhere = [] { throw Error(ErrorKind::peer, "elsewhere"); };
  CHECK_THROWS_WITH(call_before<int>(in(seconds(20)), "hang", hang, late, fails_elsewhere), "elsewhere");
  *over = true;
  CHECK(await_none());
}

/// What ranks tell each other beside the data: why a run ends, and who keeps whom waiting.

#include <atomic>
#include <chrono>
#include <thread>

#include "catch.hpp"
#include "distattn/error.hpp"
#include "launch/threads_meet.hpp"

using namespace distattn;
using namespace distattn::backends::launch;
using test::messages_of;
using test::patience_s;
using test::Port;

namespace {

/// Whether the other thread did it, for which it has more time than it can need.
bool comes_true(const std::atomic<bool>& flag) {
  for (int i = 0; i < 2000 && !flag; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return flag;
}

}  // namespace

TEST_CASE("the failure of one rank ends all, with the same words") {
  Port port(3);
  const auto messages = messages_of(3, [&](Rank rank) {
    const auto bootstrap = port.meet(rank);
    bootstrap->barrier();
    if (rank == 1) {
      bootstrap->control()->abort(Error(ErrorKind::usage, "rank 1: the file is empty"));
    }
    bootstrap->barrier();
  });
  for (const auto& message : messages) CHECK(message == "rank 1: the file is empty");
}

TEST_CASE("a listener hears of a failure at once") {
  Port port(2);
  std::atomic<bool> heard{false};
  messages_of(2, [&](Rank rank) {
    const auto bootstrap = port.meet(rank);
    bootstrap->control()->on_failure([&](const Error& error) {
      if (rank == 0) heard = std::string(error.what()).find("rank 1 ran out of paper") == 0;
    });
    bootstrap->barrier();
    if (rank == 1) bootstrap->control()->abort(Error(ErrorKind::environment, "rank 1 ran out of paper"));
    for (int i = 0; rank == 0 && i < 1000 && !heard; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    bootstrap->control()->on_failure(nullptr);
  });
  CHECK(heard);
}

TEST_CASE("a rank that is gone, and one that is silent, are named on all others") {
  for (const bool gone : {true, false}) {
    Port port(4, 0.6);
    const auto messages = messages_of(4, [&](Rank rank) {
      if (rank == 2) {
        const Socket socket = port.silent(2);
        if (!gone) std::this_thread::sleep_for(std::chrono::seconds(3));
        return;
      }
      port.meet(rank)->barrier();
    });
    CAPTURE(gone);
    for (const Rank rank : {0, 1, 3}) {
      const std::string& message = messages[static_cast<std::size_t>(rank)];
      CHECK(message.find(gone ? "rank 2 is gone" : "rank 2 made no progress for 0.6 s") == 0);
    }
  }
}

TEST_CASE("computing is progress, however long; awaiting a silent rank is not") {
  Port port(3, 0.4);
  const auto messages = messages_of(3, [&](Rank rank) {
    if (rank == 2) {
      const Socket socket = port.silent(2);
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      return;
    }
    const auto bootstrap = port.meet(rank);
    Control& control = *bootstrap->control();
    const auto since = Control::Clock::now();
    if (rank == 0) {  // works for longer than the timeout, then awaits the silent one
      control.computing(4);
      std::this_thread::sleep_for(std::chrono::milliseconds(900));
      control.resting();
      control.awaiting(Lane::near, 2);
      for (const auto begin = Control::Clock::now();;)
        control.check(2, begin), std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    control.resting();  // awaits the working one all the time
    control.awaiting(Lane::near, 0);
    while (true) control.check(0, since), std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  for (const Rank rank : {0, 1}) {
    CHECK(messages[static_cast<std::size_t>(rank)].find("rank 2 made no progress for 0.4 s") == 0);
  }
}

TEST_CASE("a listener that takes its time does not keep the failure from others") {
  Port port(3);
  std::atomic<bool> last_heard{false}, in_time{false};
  messages_of(3, [&](Rank rank) {
    const auto bootstrap = port.meet(rank);
    std::atomic<bool> told{false};
    bootstrap->control()->on_failure([&](const Error&) {
      if (rank == 0) in_time = comes_true(last_heard);
      if (rank == 1) last_heard = true;
      told = true;
    });
    bootstrap->barrier();
    if (rank == 2) bootstrap->control()->abort(Error(ErrorKind::environment, "rank 2 ran out of paper"));
    comes_true(told);
    bootstrap->control()->on_failure(nullptr);
  });
  CHECK(in_time);
}

TEST_CASE("a rank that leaves is not awaited for the whole timeout") {
  Port port(3);
  const auto messages = messages_of(3, [&](Rank rank) {
    const auto bootstrap = port.meet(rank);
    Control& control = *bootstrap->control();
    if (rank == 2) control.leaving();
    const auto since = Control::Clock::now();
    while (rank == 0) control.check(2, since), std::this_thread::sleep_for(std::chrono::milliseconds(5));
    bootstrap->barrier();
  });
  for (const auto& message : messages) {
    CHECK(message.find("rank 2 has ended its part of the run (it makes no more calls, and rank 0 waits for it)") == 0);
  }
}

TEST_CASE("a rank that leaves is awaited in collectives, and keeps nobody from awaiting others") {
  Port port(3);
  const auto messages = messages_of(3, [&](Rank rank) {
    const auto bootstrap = port.meet(rank);
    Control& control = *bootstrap->control();
    const std::vector<Rank> others{1, 2};
    if (rank == 2) control.leaving();
    const auto since = Control::Clock::now();
    while (rank == 0 && Control::Clock::now() < since + std::chrono::seconds(3)) {
      control.check(1, since);
      control.check_any(others, since);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    bootstrap->barrier();
    control.leaving();
    bootstrap->barrier();
  });
  for (const auto& message : messages) CHECK(message.empty());
}

TEST_CASE("of several that may be awaited, those that wait in turn are not blamed while one works") {
  Port port(3, 0.4);
  std::atomic<bool> over{false};
  std::atomic<Rank> awaited{-1};
  const auto messages = messages_of(3, [&](Rank rank) {
    const auto bootstrap = port.meet(rank);
    Control& control = *bootstrap->control();
    const std::vector<Rank> others{1, 2};
    control.resting();
    if (rank == 0) {
      const auto since = Control::Clock::now();
      while (Control::Clock::now() < since + std::chrono::milliseconds(1200)) {
        awaited = control.check_any(others, since);
        control.awaiting(Lane::near, awaited);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      over = true;
      while (true) control.check_any(others, since), std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (rank == 1) control.awaiting(Lane::near, 0);
    if (rank == 2) control.computing(1);
    comes_true(over);
    if (rank == 2) control.resting();
    if (rank == 2) control.awaiting(Lane::near, 1);
    for (const auto since = Control::Clock::now();;) {
      control.check(rank - 1, since);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  CHECK(over);
  CHECK(awaited == 2);
  for (const auto& message : messages) CHECK(message.find("made no progress for 0.4 s") != std::string::npos);
}

/// Ranks that find each other, here each on a thread of its own; and what happens when one does not come, or goes.

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "backends/launch/launcher.hpp"
#include "catch.hpp"
#include "distattn/error.hpp"
#include "distattn/registry.hpp"
#include "launch/threads_meet.hpp"

using namespace distattn;
using namespace distattn::backends::launch;
using test::gather_and_check;
using test::messages_of;
using test::patience_s;
using test::Port;
using test::scratch_path;

TEST_CASE("ranks meet at a port and exchange bytes of any length") {
  for (const int ranks : {1, 2, 5}) {
    Port port(ranks);
    for (const auto& message : messages_of(ranks, [&](Rank rank) { gather_and_check(*port.meet(rank)); })) {
      CHECK(message == "");
    }
  }
}

TEST_CASE("a port is taken or not whatever failed before") {
  const Socket listener = std::move(*listen_on(0, Reach::this_machine));
  CHECK_FALSE(listen_on(port_of(listener), Reach::this_machine));
  errno = EADDRINUSE;
  CHECK(listen_on(0, Reach::this_machine));
}

TEST_CASE("runs with equal commands that meet at one port get one process a rank each") {
  LauncherEnvironment place;
  place.launcher = "test";
  {
    const Socket free = std::move(*listen_on(0, Reach::this_machine));
    for (int port = port_of(free); place.ports.size() < 8; ++port) place.ports.push_back(port);
  }
  const auto folder = std::filesystem::temp_directory_path();
  const auto token =
      folder / ("distattn-" + std::to_string(::geteuid()) + "-" + std::to_string(place.ports.front()) + ".token");
  std::ofstream(token) << "of a run that did not end well";
  constexpr int ranks = 3, runs = 3;
  std::array<std::atomic<int>, runs> members{};
  const auto messages = messages_of(ranks * runs, [&](Rank process) {
    LauncherEnvironment own = place;
    const Rank rank = process % ranks;
    own.place = {rank, ranks, rank, ranks};
    const auto bootstrap = meet_at_port(own, patience_s);
    const int run = process / ranks;
    const auto said = bootstrap->all_gather(std::as_bytes(std::span(&run, 1)));
    int of_first = 0;
    std::memcpy(&of_first, said[0].data(), sizeof of_first);
    ++members[static_cast<std::size_t>(of_first)];
  });
  for (const auto& message : messages) CHECK(message == "");
  for (const auto& count : members) CHECK(count == ranks);
  CHECK(!std::filesystem::exists(token));
}

TEST_CASE("runs that torchrun started with one port meet each by itself") {
  LauncherEnvironment place;
  place.launcher = "test";
  {
    const Socket free = std::move(*listen_on(0, Reach::this_machine));
    for (int port = port_of(free); place.ports.size() < 8; ++port) place.ports.push_back(port);
  }
  std::atomic<int> met{0};
  const auto messages = messages_of(4, [&](Rank process) {
    LauncherEnvironment own = place;
    own.start = "/errors/of_run_" + std::to_string(process / 2);
    own.place = {process % 2, 2, process % 2, 2};
    const auto bootstrap = meet_at_port(own, patience_s);
    const auto starts = bootstrap->all_gather(std::as_bytes(std::span(own.start)));
    if (starts[0] == starts[1]) ++met;
  });
  for (const auto& message : messages) CHECK(message == "");
  CHECK(met == 4);
}

TEST_CASE("who accepts and says nothing leaves time for the port where rank 0 is") {
  Port port(2, 2);
  const Socket silent = std::move(*listen_on(0, Reach::this_machine));
  MeetingPoint where = port.where();
  where.endpoints.insert(where.endpoints.begin(), 3, {"127.0.0.1", port_of(silent)});
  const auto messages = messages_of(2, [&](Rank rank) {
    if (rank == 0) return port.meet(0)->barrier();
    const auto look = [&] { return where; };
    ProcessBootstrap("test", port.place(1), look, port.timeout_s).barrier();
  });
  for (const auto& message : messages) CHECK(message == "");
}

TEST_CASE("who does not find rank 0 says what there is instead") {
  const Socket silent = std::move(*listen_on(0, Reach::this_machine));
  const auto look_at = [&](const std::vector<Endpoint>& endpoints) {
    const MeetingPoint where{endpoints, RunKey("token"), "nobody knows where it is"};
    return messages_of(1, [&](Rank) {
      join_ranks(
          {1, 2, 1, 2}, [&] { return where; }, after_seconds(0.2));
    })[0];
  };
  CHECK_THAT(look_at({}), contains_text("rank 0 was not found") && contains_text("nobody knows where it is"));
  CHECK_THAT(look_at({{"127.0.0.1", port_of(silent)}}), contains_text("no rank 0 of this run answers"));
  CHECK_THAT(look_at({{"127.0.0.1", 1}, {"127.0.0.1", 2}}), contains_text("port 1 of 127.0.0.1: Connection refused)"));
}

TEST_CASE("a rank 0 that may open no more files says so") {
  Port port(3);
  const auto visitor = connect_to("127.0.0.1", port_of(port.listener), after_seconds(patience_s));
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const Socket next(::dup(0));
  const rlimit none_left{static_cast<rlim_t>(next.fd()) + 1, limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none_left);
  const Arrivals arrivals = await_ranks(port.listener, 3, port.token, after_seconds(patience_s));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  REQUIRE(arrivals.failure);
  CHECK(arrivals.failure->kind() == ErrorKind::environment);
  CHECK_THAT(arrivals.failure->what(), contains_text("Too many open files"));
}

TEST_CASE("strangers, garbage and slow writers do no harm") {
  Port port(3);
  std::atomic<bool> stop{false};
  std::thread crowd([&] {
    std::vector<Socket> slow;
    for (int i = 0; !stop && i < 2000; ++i) {
      auto stranger = connect_to("127.0.0.1", port_of(port.listener), after_seconds(1));
      if (!stranger) continue;
      const std::string garbage(static_cast<std::size_t>(i % 97), 'x');
      send_some(*stranger, std::as_bytes(std::span(garbage)));
      if (i % 3 == 0) slow.push_back(std::move(*stranger));  // says a little, and nothing more
      if (slow.size() > 300) slow.clear();
    }
  });
  std::thread liar([&] {
    try {
      join_ranks(
          port.place(1),
          [&] {
            return MeetingPoint{port.where().endpoints, RunKey("a wrong token")};
          },
          after_seconds(0.5));
    } catch (const Error&) {
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto messages = messages_of(3, [&](Rank rank) { gather_and_check(*port.meet(rank)); });
  stop = true;
  crowd.join();
  liar.join();
  for (const auto& message : messages) CHECK(message == "");
}

TEST_CASE("a rank that does not come is named to those that have") {
  Port port(4, 2);
  const auto messages = messages_of(3, [&](Rank rank) { port.meet(rank)->barrier(); });
  for (const auto& message : messages) {
    INFO(message);
    CHECK(message.find("rank 3 did not come") == 0);
  }
}

TEST_CASE("a rank that has come and talked is seen to go while others are awaited") {
  Port port(3, patience_s);
  const auto messages = messages_of(2, [&](Rank rank) {
    if (rank == 0) {
      port.meet(0);
      return;
    }
    const Socket socket = port.silent(1);
    const std::byte heartbeat{};
    CHECK(send_some(socket, {&heartbeat, 1}) == 1u);
  });
  CHECK(messages[0].find("rank 1 is gone") == 0);
}

TEST_CASE("a timeout is above 0, and may be for ever") {
  const auto message = [](double timeout_s) {
    return messages_of(1, [&](Rank) { make_bootstrap("file", {scratch_path(), 1, timeout_s}); })[0];
  };
  CHECK(message(std::numeric_limits<double>::infinity()) == "");
  CHECK(message(0).find("the timeout is not above 0") == 0);
  CHECK(message(std::numeric_limits<double>::quiet_NaN()).find("the timeout is not above 0") == 0);
}

TEST_CASE("a rank of another number of ranks is turned away, and the others go on") {
  Port port(2);
  const auto messages = messages_of(3, [&](Rank rank) {
    if (rank < 2) return port.meet(rank)->barrier();
    join_ranks(
        {2, 3, 2, 3}, [&] { return port.where(); }, after_seconds(1));
  });
  CHECK(messages[0] == "");
  CHECK(messages[1] == "");
  CHECK((messages[2] == "" || messages[2].find("rank 2 of 3 is not expected") == 0 ||
         messages[2].find("rank 0 was not found") == 0));
}

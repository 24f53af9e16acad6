/// Ranks that find each other, here each on a thread of its own; and what happens when one does not come, or goes.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>

#include "backends/launch/launcher.hpp"
#include "backends/launch/meeting_file.hpp"
#include "catch.hpp"
#include "distattn/error.hpp"
#include "distattn/registry.hpp"
#include "launch/threads_meet.hpp"

using namespace distattn;
using namespace distattn::backends::launch;
using test::messages_of;
using test::patience_s;
using test::Port;

namespace {

std::vector<std::byte> bytes_of_rank(Rank rank) {
  return std::vector<std::byte>(static_cast<std::size_t>(rank * 100003), static_cast<std::byte>(rank));
}

void gather_and_check(Bootstrap& bootstrap) {
  for (int round = 0; round < 3; ++round) {
    const auto all = bootstrap.allgather(bytes_of_rank(bootstrap.rank()));
    for (Rank rank = 0; rank < bootstrap.size(); ++rank) {
      if (all[static_cast<std::size_t>(rank)] != bytes_of_rank(rank)) throw std::runtime_error("other bytes came");
    }
    bootstrap.barrier();
  }
}

std::string scratch_path() {
  static std::atomic<int> count{0};
  return (std::filesystem::temp_directory_path() /
          ("distattn-meeting-" + std::to_string(::getpid()) + "-" + std::to_string(count++)))
      .string();
}

}  // namespace

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

TEST_CASE("a meeting that is refused leaves no file open") {
  const std::string path = scratch_path();
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const MeetingFile first(path, 1, std::nullopt, after_seconds(patience_s));
  const auto before = open_files();
  for (int again = 0; again < 5; ++again) {
    CHECK_THROWS_AS(MeetingFile(path, 1, std::nullopt, after_seconds(patience_s)), Error);
  }
  CHECK(open_files() == before);
  std::filesystem::remove(path);
}

TEST_CASE("ranks meet at a file, and take it away") {
  const std::string path = scratch_path();
  for (int run = 0; run < 3; ++run) {
    std::atomic<int> sum{0};
    const auto messages = messages_of(4, [&](Rank) {
      const auto bootstrap = meet_at_file(
          path, 4, [](const std::string&) { return std::nullopt; }, patience_s);
      sum += bootstrap->rank();
      gather_and_check(*bootstrap);
      if (bootstrap->local_size() != 4) throw std::runtime_error("all ranks are on this node");
    });
    for (const auto& message : messages) CHECK(message == "");
    CHECK(sum == 6);
    CHECK(!std::filesystem::exists(path));
  }
}

TEST_CASE("a file says who is missing, to all that came") {
  const std::string path = scratch_path();
  const auto messages = messages_of(3, [&](Rank rank) {
    const auto wish = [&](const std::string& name) {
      return name == "DISTATTN_RANK" ? std::optional(std::to_string(rank)) : std::nullopt;
    };
    meet_at_file(path, 4, wish, 2);
  });
  for (const auto& message : messages) {
    INFO(message);
    CHECK(message.find("rank 3 did not come") == 0);
  }
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE("a rank of a container with process numbers of its own is not taken for gone") {
  const std::string path = scratch_path();
  const auto claimed_by_others = [&](const std::string& pids) {
    std::ofstream(path) << "ranks 2 token\nclaim - " << node_identity() << " " << pids << " 999999999\n";
    MeetingFile file(path, 2, std::nullopt, after_seconds(patience_s));
    const bool begun_anew = file.token() != "token";
    std::filesystem::remove(path);
    return !begun_anew;
  };
  CHECK(claimed_by_others("pid:[1]"));
  CHECK_FALSE(claimed_by_others(pid_namespace()));
}

TEST_CASE("a process that is stopped while it holds the file does not stop the others") {
  const std::string path = scratch_path();
  MeetingFile first(path, 2, std::nullopt, after_seconds(patience_s));
  const int stopped = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(::flock(stopped, LOCK_EX) == 0);
  const auto held_up = [&](const std::function<void()>& visit) {
    return messages_of(1, [&](Rank) { visit(); })[0].find("stays locked (a rank that came to it has stopped)") !=
           std::string::npos;
  };
  CHECK(held_up([&] { MeetingFile(path, 2, std::nullopt, after_seconds(0.1)); }));
  CHECK(held_up([&] { first.wait_for_all(after_seconds(0.1)); }));
  CHECK(held_up([&] { first.announced(after_seconds(0.1)); }));
  CHECK(held_up([&] { first.announce({}, after_seconds(0.1)); }));

  ::close(stopped);
  MeetingFile second(path, 2, std::nullopt, after_seconds(patience_s));
  CHECK(second.wait_for_all(after_seconds(patience_s)).rank == 1);
  std::filesystem::remove(path);
}

TEST_CASE("of two runs that meet at one port, the second is told so and takes nothing from the first") {
  Surroundings place;
  place.launcher = "test";
  place.place = {0, 2, 0, 2};
  {
    const Socket free = std::move(*listen_on(0, Reach::this_machine));
    for (int port = port_of(free); place.ports.size() < 4; ++port) place.ports.push_back(port);
  }
  const auto folder = std::filesystem::temp_directory_path();
  const auto token =
      folder / ("distattn-" + std::to_string(::geteuid()) + "-" + std::to_string(place.ports.front()) + ".token");
  std::ofstream(token) << "of a run that did not end well";
  const auto messages = messages_of(2, [&](Rank rank) {
    Surroundings own = place;
    own.place.rank = own.place.local_rank = rank;
    if (rank == 1) {
      const auto locked = [&] {
        const Socket file(::open(token.c_str(), O_RDWR | O_CLOEXEC));
        return file && ::flock(file.fd(), LOCK_EX | LOCK_NB) != 0;
      };
      while (!locked()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (int again = 0; again < 2; ++again) {
        const std::string told = messages_of(1, [&](Rank) { meet_at_port(place, patience_s); })[0];
        if (told.find("another run meets at port") != 0) throw std::runtime_error("told: " + told);
      }
    }
    meet_at_port(own, patience_s)->barrier();
  });
  for (const auto& message : messages) CHECK(message == "");
  CHECK(!std::filesystem::exists(token));
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
            return Whereabouts{port.where().endpoints, "a wrong token"};
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

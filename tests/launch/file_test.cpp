/// Ranks that find each other by a file, here each on a thread of its own; and what happens when one is not there.

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "backends/launch/launcher.hpp"
#include "backends/launch/meeting_file.hpp"
#include "catch.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"
#include "launch/threads_meet.hpp"

using namespace distattn;
using namespace distattn::backends::launch;
using test::gather_and_check;
using test::messages_of;
using test::patience_s;
using test::scratch_path;

namespace {

/// The variables of a rank that says which it is, and where rank 0 may listen.
Variables wish_of(Rank rank, const std::string& port = "0") {
  return [rank, port](const std::string& name) -> std::optional<std::string> {
    if (name == "DISTATTN_RANK") return std::to_string(rank);
    if (name == "DISTATTN_PORT") return port;
    return std::nullopt;
  };
}

/// A process that does nothing; ended at the latest when this is destroyed.
class Child {
 public:
  Child() : pid_(::fork()) {
    while (pid_ == 0) ::pause();
  }
  ~Child() {
    kill();
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  /// And does not ask what became of it.
  void kill() {
    ::kill(pid_, SIGKILL);
    siginfo_t ended{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT);
  }

 private:
  pid_t pid_;
};

}  // namespace

TEST_CASE("ranks do not meet through a link, whose target would stay behind") {
  const std::string path = scratch_path(), target = path + ".target";
  std::filesystem::create_symlink(target, path);
  const auto meet = [&] { MeetingFile(path, 1, std::nullopt, after_seconds(patience_s)); };
  CHECK_THROWS_WITH(meet(), contains_text("it is a symbolic link"));
  CHECK(!std::filesystem::exists(target));
  std::ofstream(target) << "somebody's";
  CHECK_THROWS_WITH(meet(), contains_text("it is a symbolic link"));
  CHECK(std::filesystem::file_size(target) == 10);
  std::filesystem::remove(path);
  std::filesystem::remove(target);
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

TEST_CASE("a file says who is missing, to all that came, for whom it is a timeout alike") {
  const std::string path = scratch_path();
  std::atomic<int> timeouts{0};
  const auto messages = messages_of(3, [&](Rank rank) {
    try {
      meet_at_file(path, 4, wish_of(rank), 2);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::timeout) ++timeouts;
      throw;
    }
  });
  CHECK(timeouts == 3);
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

TEST_CASE("a process that has ended is gone before its parent asks, and one with its number is another") {
  const std::string path = scratch_path();
  const auto begun_anew = [&](pid_t pid, const std::string& born) {
    std::ofstream(path) << "ranks 2 token\nclaim - " << node_identity() << " " << pid_namespace() << " " << pid << " "
                        << born << "\n";
    const MeetingFile file(path, 2, std::nullopt, after_seconds(patience_s));
    std::filesystem::remove(path);
    return file.token() != "token";
  };
  Child child;
  CHECK_FALSE(begun_anew(child.pid(), "unknown"));
  CHECK(begun_anew(child.pid(), "0"));
  child.kill();
  CHECK(begun_anew(child.pid(), "unknown"));
}

TEST_CASE("why rank 0 cannot listen is told to those that came to the file") {
  const std::string path = scratch_path();
  const Socket listener = std::move(*listen_on(0, Reach::this_machine));
  const auto messages = messages_of(
      3, [&](Rank rank) { meet_at_file(path, 3, wish_of(rank, std::to_string(port_of(listener))), patience_s); });
  for (const auto& message : messages) CHECK(message.find("rank 0 cannot listen on port") == 0);
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE("a rank 0 that ends before it says where it listens is gone, for those that came to the file") {
  const std::string path = scratch_path();
  Child child;
  std::ofstream(path) << "ranks 2 token\nclaim 0 " << node_identity() << " " << pid_namespace() << " " << child.pid()
                      << " unknown\n";
  MeetingFile file(path, 2, 1, after_seconds(patience_s));
  CHECK(file.wait_for_all(after_seconds(patience_s)).rank == 1);
  CHECK(file.announced(after_seconds(patience_s)).empty());
  child.kill();
  CHECK_THROWS_WITH(file.announced(after_seconds(patience_s)), contains_text("rank 0 is gone"));
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE("a meeting that failed is not waited for again, and a process that is interrupted takes the name away") {
  const std::string path = scratch_path();
  const auto come = [&] { return MeetingFile(path, 2, std::nullopt, after_seconds(patience_s)).token(); };
  {
    MeetingFile first(path, 2, std::nullopt, after_seconds(patience_s));
    first.give_up(Error(ErrorKind::environment, "rank 0 has no port"), after_seconds(patience_s));
    CHECK(come() != first.token());
  }
  CHECK(std::filesystem::exists(path));
  const MeetingFile second(path, 2, std::nullopt, after_seconds(patience_s));
  static_cast<void>(remove_temporary_files());
  CHECK(!std::filesystem::exists(path));
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

#include <sched.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "catch.hpp"
#include "cli/tools/calibrate.hpp"
#include "core/src/prediction/machine_store.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/machine.hpp"
#include "unit/io/scratch.hpp"

using namespace distattn;
using namespace distattn::test;
using Catch::Matchers::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string nominal_with(const char* field, const json& value) {
  json text = json::parse(to_json(nominal_machine()));
  text[field] = value;
  return text.dump();
}

/// Lets this test's calibration live in a folder of its own.
class CacheFolder {
 public:
  CacheFolder() { ::setenv("XDG_CACHE_HOME", scratch_.path().c_str(), 1); }
  ~CacheFolder() { ::unsetenv("XDG_CACHE_HOME"); }
  const Scratch& scratch() const { return scratch_; }

 private:
  Scratch scratch_;
};

}  // namespace

TEST_CASE("this machine has nominal figures until it is calibrated", "[machine]") {
  const CacheFolder cache;
  Machine machine = find_machine("this");
  CHECK(machine == nominal_machine());
  CHECK(machine.cores >= 1);
  CHECK_THAT(describe_age(machine), Contains("never measured here"));

  machine.measured = "2020-02-03T04:05:06Z";
  machine.near.bytes_per_s = 12345e6;
  store_calibration(machine);
  CHECK(find_machine("this") == machine);
  CHECK(cache.scratch().file_count() == 1);
  std::thread([] {  // bound to fewer cores than it was measured on
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    if (usable_cores() < 2 || ::sched_setaffinity(0, sizeof one, &one) != 0) return;
    CHECK(find_machine("this") == nominal_machine());
  })
      .join();
  CHECK_THAT(describe_age(machine), Contains("measured here") && Contains("days ago"));

  std::ofstream(calibration_file()) << "{";
  CHECK(find_machine("this") == nominal_machine());
  CHECK_THAT(refusal([] { find_machine(calibration_file().string()); }), Contains("machine file"));
}

TEST_CASE("what stands in a calibration's place stops nobody, and is replaced", "[machine]") {
  const CacheFolder cache;
  CHECK(stored_calibration().why_not.empty());
  CHECK_FALSE(stored_calibration().machine);
  require_calibration_folder();
  const fs::path path = calibration_file();
  using Make = std::function<void(const fs::path&)>;
  const auto holding = [](std::string text) -> Make { return [=](const fs::path& to) { std::ofstream(to) << text; }; };
  const auto zeros = [](std::uintmax_t bytes) -> Make {
    return [=](const fs::path& to) { fs::resize_file((std::ofstream(to), to), bytes); };
  };
  const auto link_to = [](const char* target) -> Make {
    return [=](const fs::path& to) { fs::create_symlink(target, to); };
  };
  const auto [what, make, words] = GENERATE_COPY(table<std::string, Make, std::string>(
      {{"half of one", holding("{\"nodes\": "), "JSON"},
       {"nothing", holding(""), "it is empty"},
       {"zeros", zeros(4096), "it has a zero byte"},
       {"no end", zeros(std::uintmax_t{1} << 40), "it is longer"},
       {"a list", holding("[]"), "object"},
       {"a newer version's", holding(nominal_with("schema_version", 2)), "schema_version"},
       {"an unknown field", holding(nominal_with("colour", "green")), "colour"},
       {"a folder", [](const fs::path& to) { fs::create_directory(to); }, "it is not a regular file"},
       {"a pipe", [](const fs::path& to) { ::mkfifo(to.c_str(), 0600); }, "it is not a regular file"},
       {"a device", link_to("/dev/zero"), "it is not a regular file"},
       {"a link to nothing", link_to("/nowhere/at/all"), "it is not a regular file"},
       {"a link to itself", [](const fs::path& to) { fs::create_symlink(to.filename(), to); }, ""}}));
  INFO(what);
  make(path);
  const StoredCalibration stored = stored_calibration();
  CHECK_FALSE(stored.machine);
  CHECK_THAT(stored.why_not,
             Contains(words) && Contains(path.string()) && Contains("bench --calibrate") && !Contains("\n"));
  CHECK(find_machine("this") == nominal_machine());

  Machine machine = nominal_machine();
  machine.measured = "2020-02-03T04:05:06Z";
  store_calibration(machine);
  CHECK(stored_calibration().machine == machine);
  CHECK(fs::is_regular_file(fs::symlink_status(path)));
}

TEST_CASE("a folder with something in it is said before anything is measured", "[machine]") {
  const CacheFolder cache;
  fs::create_directories(calibration_file() / "mine");
  try {
    require_calibration_folder();
    FAIL("what is somebody's was removed");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::environment);
    CHECK_THAT(error.what(), Contains(calibration_file().string()) && Contains("move it away"));
  }
  CHECK(fs::exists(calibration_file() / "mine"));
}

TEST_CASE("calibrations that are stored at once are read whole", "[machine]") {
  const CacheFolder cache;
  Machine machine = nominal_machine();
  machine.measured = "2020-02-03T04:05:06Z";
  store_calibration(machine);
  std::atomic<bool> stored = false;
  const auto store = [&](double bytes_per_s) {
    Machine own = machine;
    own.near.bytes_per_s = bytes_per_s;
    for (int i = 0; i < 50; ++i) store_calibration(own);
  };
  std::thread read([&] {
    while (!stored) {
      if (!stored_calibration().machine) FAIL_CHECK(stored_calibration().why_not);
    }
  });
  std::thread first(store, 1e9), second(store, 2e9);
  first.join();
  second.join();
  stored = true;
  read.join();
  CHECK(std::distance(fs::directory_iterator(calibration_file().parent_path()), {}) == 1);
}

TEST_CASE("a calibration is stored where the environment says, under any host's name", "[machine]") {
  CHECK(calibration_name("node-1.cluster", 8) == "machine-node-1.cluster-8.json");
  CHECK(calibration_name("a/b c\n\xc3\xa9$(x)'", 2) == "machine-a_b_c_____x__-2.json");
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  ::setenv("HOME", "/somewhere", 1);
  for (const char* const no_folder : {"cache", "", "./cache"}) {  // relative ones are ignored, as XDG says
    ::setenv("XDG_CACHE_HOME", no_folder, 1);
    CHECK(calibration_file().parent_path() == "/somewhere/.cache/distattn");
  }
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  CHECK(calibration_file().empty());
  CHECK(find_machine("this") == nominal_machine());
  CHECK_THROWS_WITH(require_calibration_folder(), Contains("HOME"));
  for (const char* const no_home : {"/dev/null", "/nowhere/at/all", "relative"}) {
    ::setenv("HOME", no_home, 1);
    CHECK(find_machine("this") == nominal_machine());
    CHECK(stored_calibration().why_not.empty());
  }
  ::setenv("HOME", home.c_str(), 1);
}

TEST_CASE("a calibration that cannot be stored is an error of the environment", "[machine]") {
  ::setenv("XDG_CACHE_HOME", "/proc", 1);
  const auto refused = [](auto call) {
    try {
      call();
      FAIL("can store under /proc");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::environment);
      CHECK_THAT(error.what(), Contains("/proc/distattn"));
    }
  };
  refused([] { require_calibration_folder(); });
  refused([] { store_calibration(nominal_machine()); });
  ::unsetenv("XDG_CACHE_HOME");
}

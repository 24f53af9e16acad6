#include <sched.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "catch.hpp"
#include "core/src/control_groups.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "io/scratch.hpp"

using namespace distattn;

namespace {

constexpr std::int64_t MiB = 1 << 20;
constexpr std::int64_t none = GroupLimits::unlimited;

/// A made-up /proc and /sys.
class Tree {
 public:
  Tree(const std::string& groups, const std::string& mounts, const std::map<std::string, std::string>& files) {
    write("proc/self/cgroup", groups);
    write("proc/self/mountinfo", mounts);
    for (const auto& [name, text] : files) write("sys/fs/cgroup/" + name, text + "\n");
  }
  GroupLimits limits() const { return group_limits(scratch_.path()); }
  std::uint64_t inode(const std::string& group) const {
    struct stat status {};
    ::stat((scratch_.path() / "sys/fs/cgroup" / group).c_str(), &status);
    return status.st_ino;
  }

 private:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((scratch_.path() / name).parent_path());
    std::ofstream(scratch_.path() / name) << text;
  }
  test::Scratch scratch_;
};

std::string v2(const std::string& top = "/") {
  return "24 1 0:22 / /proc rw - proc proc rw\n30 24 0:26 " + top +
         " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
}
std::string v1(const std::string& controller, const std::string& top = "/") {
  return "33 31 0:30 " + top + " /sys/fs/cgroup/" + controller + " rw,relatime - cgroup cgroup rw," + controller + "\n";
}

}  // namespace

TEST_CASE("the least quota and memory limit on the way to the root count", "[resources]") {
  const Tree tree("0::/job/step/task\n", v2(),
                  {{"job/cpu.max", "350000 100000"},
                   {"job/step/cpu.max", "max 100000"},
                   {"job/step/task/cpu.max", "800000 100000"},
                   {"job/memory.max", std::to_string(300 * MiB)},
                   {"job/memory.current", std::to_string(260 * MiB)},
                   {"job/memory.stat", "anon 1\ninactive_file 41943040\nactive_file 20971520"},
                   {"job/step/memory.max", "max"},
                   {"job/step/task/memory.high", std::to_string(250 * MiB)},
                   {"job/step/task/memory.current", std::to_string(10 * MiB)}});
  const GroupLimits limits = tree.limits();
  CHECK(limits.processors == Approx(3.5));
  CHECK(limits.memory_bytes == 250 * MiB);
  REQUIRE(limits.groups.size() == 2);  // each counts for those whom it holds; job/step limits nothing
  CHECK(limits.groups[0].inode == tree.inode("job/step/task"));
  CHECK(limits.groups[0].quota == Approx(8.0));
  CHECK(limits.groups[0].free_bytes == 240 * MiB);
  CHECK(limits.groups[1].inode == tree.inode("job"));
  CHECK(limits.groups[1].quota == Approx(3.5));
  CHECK(limits.groups[1].free_bytes == 100 * MiB);  // 300 − (260 − 60 of caches)
}

TEST_CASE("control groups of version 1", "[resources]") {
  const Tree tree("4:memory:/a/b\n1:cpu,cpuacct:/a/b\n", v1("memory") + v1("cpu,cpuacct"),
                  {{"cpu,cpuacct/a/cpu.cfs_quota_us", "150000"},
                   {"cpu,cpuacct/a/cpu.cfs_period_us", "50000"},
                   {"cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1"},
                   {"cpu,cpuacct/a/b/cpu.cfs_period_us", "100000"},
                   {"memory/a/b/memory.limit_in_bytes", "9223372036854771712"},
                   {"memory/a/b/memory.stat", "total_inactive_file 0\nhierarchical_memory_limit 125829120"},
                   {"memory/a/memory.limit_in_bytes", std::to_string(200 * MiB)},
                   {"memory/a/memory.usage_in_bytes", std::to_string(50 * MiB)}});
  CHECK(tree.limits().processors == Approx(3.0));
  CHECK(tree.limits().memory_bytes == 120 * MiB);
  const std::vector<ControlGroup> groups = tree.limits().groups;
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].free_bytes == 150 * MiB);
  CHECK(groups[1].quota == Approx(3.0));
}

TEST_CASE("both versions at once", "[resources]") {
  const Tree tree(
      "4:memory:/m\n1:name=systemd:/x\n0::/u\n",
      v1("memory") + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
      {{"memory/m/memory.limit_in_bytes", std::to_string(64 * MiB)}, {"unified/u/cpu.max", "50000 100000"}});
  CHECK(tree.limits().processors == Approx(0.5));
  CHECK(tree.limits().memory_bytes == 64 * MiB);
}

TEST_CASE("a container sees its own group at the top of what is mounted", "[resources]") {
  const std::string group = "/docker/0123";
  const std::map<std::string, std::string> files = {{"cpu.max", "200000 100000"},
                                                    {"memory.max", std::to_string(64 * MiB)}};
  SECTION("a namespace of its own") { CHECK(Tree("0::/\n", v2(), files).limits().processors == Approx(2.0)); }
  SECTION("none: its path is that of the machine") {
    CHECK(Tree("0::" + group + "\n", v2(group), files).limits().processors == Approx(2.0));
    CHECK(Tree("0::" + group + "\n", v2(group), files).limits().memory_bytes == 64 * MiB);
  }
  SECTION("a group below it") {
    const Tree tree("0::" + group + "/x\n", v2(group), {{"cpu.max", "400000 100000"}, {"x/cpu.max", "100000 100000"}});
    CHECK(tree.limits().processors == Approx(1.0));
  }
  SECTION("moved to a group outside, of which nothing is shown") {
    CHECK(Tree("0::/../other\n", v2(), files).limits().processors == Approx(2.0));
    CHECK(Tree("0::/elsewhere\n", v2(group), files).limits().processors == Approx(2.0));
  }
}

TEST_CASE("mount points with blanks, several mounts, and files that say nothing of use", "[resources]") {
  const Tree tree(
      "0::/a:b c\n",
      "29 24 0:26 /other /sys/fs/cgroup/not\\040this rw - cgroup2 cgroup2 rw\n" + v2() + "no mount at all\n",
      {{"a:b c/cpu.max", "250000 100000"},
       {"a:b c/memory.max", "a lot"},
       {"cpu.max", "100000 0"},
       {"not this/cpu.max", "100000 100000"}});
  CHECK(tree.limits().processors == Approx(2.5));
  CHECK(tree.limits().memory_bytes == none);
}

TEST_CASE("without control groups there is no limit", "[resources]") {
  const test::Scratch empty;
  CHECK(std::isinf(group_limits(empty.path()).processors));
  CHECK(group_limits(empty.path()).memory_bytes == none);
  CHECK(group_limits(empty.path()).groups.empty());
}

TEST_CASE("cores are processors, and no more than the quota rounded down", "[resources]") {
  HostResources host;
  CHECK(host.cores() == 1);
  host.processors = {0, 0xff00ff};  // beyond the first 64
  CHECK(host.cores() == 16);
  host.quota = 3.99;
  CHECK(host.cores() == 3);
  host.quota = 0.2;
  CHECK(host.cores() == 1);
  host.quota = 100;
  CHECK(host.cores() == 16);
}

TEST_CASE("a thread that is bound to one processor has one core", "[resources]") {
  const HostResources host = host_resources();
  CHECK(host.physical_bytes > 0);
  CHECK(host.memory_bytes() <= host.physical_bytes);
  CHECK(host.physical_free_bytes < HostResources::unlimited);
  int cores = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    if (::sched_setaffinity(0, sizeof one, &one) == 0) cores = usable_cores();
  }).join();
  CHECK(cores == 1);
}

#include "core/src/control_groups.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace distattn {
namespace {

namespace fs = std::filesystem;

/// One tree of groups, as it is mounted here.
struct Hierarchy {
  bool unified = false;  // version 2
  std::string options;   // version 1: names the controllers
  fs::path top, mount_point;
};

/// Whether one of the words between commas is `word`.
bool lists(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t length = words.find(',');
    if (words.substr(0, length) == word) return true;
    words.remove_prefix(length == words.npos ? words.size() : length + 1);
  }
  return false;
}

/// "\040" of mountinfo is a blank.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

/// Of proc(5)'s mountinfo: "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw".
std::vector<Hierarchy> hierarchies(const fs::path& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t behind = line.find(" - ");
    if (behind == line.npos) continue;
    std::string id, parent, device, top, mount_point, type, source, options;
    std::istringstream(line.substr(0, behind)) >> id >> parent >> device >> top >> mount_point;
    std::istringstream(line.substr(behind + 3)) >> type >> source >> options;
    if (type != "cgroup" && type != "cgroup2") continue;
    found.push_back(
        {type == "cgroup2", options, unescaped(top), root / fs::path(unescaped(mount_point)).relative_path()});
  }
  return found;
}

/// The group `path` as a folder below the mount of a tree whose top is the group `top`. Nothing where it is not below:
/// a container sees its own group at the top, or a process was moved out of what its namespace shows.
std::optional<fs::path> below(const fs::path& path, const fs::path& top) {
  const fs::path relative = path.lexically_relative(top);
  if (relative.empty() || *relative.begin() == "..") return std::nullopt;
  for (const fs::path& part : path) {
    if (part == "..") return std::nullopt;
  }
  return relative == "." ? fs::path() : relative;
}

std::optional<std::int64_t> number_in(const fs::path& file) {
  std::int64_t value = 0;
  if (std::ifstream(file) >> value) return value;
  return std::nullopt;
}

/// A line "name value" of a group's memory.stat; 0 where there is none.
std::int64_t statistic(const fs::path& folder, std::string_view name) {
  std::ifstream file(folder / "memory.stat");
  std::string key;
  for (std::int64_t value = 0; file >> key >> value;) {
    if (key == name) return value;
  }
  return 0;
}

class Least {
 public:
  /// What one group says, by the names of either version; what it does not say is no limit.
  void take(const fs::path& folder, bool unified) {
    group_ = {};
    unified ? take_quota_2(folder) : take_quota_1(folder);
    if (unified) {
      take_memory(folder, {"memory.max", "memory.high"}, "memory.current", "");
    } else {
      take_memory(folder, {"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_");
      // Groups above the mounted ones limit this one too.
      if (const std::int64_t bytes = statistic(folder, "hierarchical_memory_limit"); bytes > 0) lower(bytes);
    }
    if (std::isinf(group_.quota) && group_.free_bytes == GroupLimits::unlimited) return;
    struct stat status {};
    if (::stat(folder.c_str(), &status) == 0) {
      group_.device = status.st_dev;
      group_.inode = status.st_ino;
    }
    limits_.groups.push_back(group_);
  }

  const GroupLimits& limits() const { return limits_; }

 private:
  void take_quota_1(const fs::path& folder) {
    const auto quota = number_in(folder / "cpu.cfs_quota_us"), period = number_in(folder / "cpu.cfs_period_us");
    if (quota && period) take_quota(*quota, *period);
  }
  /// "150000 100000", or "max 100000".
  void take_quota_2(const fs::path& folder) {
    std::int64_t quota = 0, period = 0;
    if (std::ifstream(folder / "cpu.max") >> quota >> period) take_quota(quota, period);
  }
  void take_quota(std::int64_t quota_us, std::int64_t period_us) {
    if (quota_us <= 0 || period_us <= 0) return;
    group_.quota = static_cast<double>(quota_us) / static_cast<double>(period_us);
    limits_.processors = std::min(limits_.processors, group_.quota);
  }

  void take_memory(const fs::path& folder, std::initializer_list<const char*> names, const char* usage,
                   const std::string& prefix) {
    for (const char* const name : names) {
      const auto limit = number_in(folder / name);
      if (!limit || *limit < 0 || *limit >= no_limit) continue;
      lower(*limit);
      const std::int64_t caches =
          statistic(folder, prefix + "inactive_file") + statistic(folder, prefix + "active_file");
      const std::int64_t used = std::max<std::int64_t>(0, number_in(folder / usage).value_or(0) - caches);
      group_.free_bytes = std::min(group_.free_bytes, std::max<std::int64_t>(0, *limit - used));
    }
  }
  void lower(std::int64_t bytes) {
    if (bytes < no_limit) limits_.memory_bytes = std::min(limits_.memory_bytes, bytes);
  }

  static constexpr std::int64_t no_limit = std::int64_t{1} << 60;  // version 1 says it with a number beyond
  GroupLimits limits_;
  ControlGroup group_;  // the one that is being read
};

/// From the group itself up to the top of what is mounted.
void climb(const Hierarchy& tree, fs::path group, Least& least) {
  while (true) {
    least.take(tree.mount_point / group, tree.unified);
    if (group.empty()) return;
    group = group.parent_path();
  }
}

/// The mounted tree that shows the group; otherwise any of that kind, whose top is the nearest that can be seen.
void find_and_climb(const std::vector<Hierarchy>& trees, const fs::path& group, const auto& of_this_kind,
                    Least& least) {
  const Hierarchy* nearest = nullptr;
  for (const Hierarchy& tree : trees) {
    if (!of_this_kind(tree)) continue;
    if (nearest == nullptr) nearest = &tree;
    if (const auto folder = below(group, tree.top)) return climb(tree, *folder, least);
  }
  if (nearest != nullptr) climb(*nearest, {}, least);
}

}  // namespace

GroupLimits group_limits(const fs::path& root) {
  const std::vector<Hierarchy> trees = hierarchies(root);
  Least least;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/user/x", in version 2 "0::/user/x"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      find_and_climb(
          trees, group, [](const Hierarchy& tree) { return tree.unified; }, least);
    }
    for (const char* const controller : {"cpu", "memory"}) {
      if (!lists(controllers, controller)) continue;
      const auto holds = [&](const Hierarchy& tree) { return !tree.unified && lists(tree.options, controller); };
      find_and_climb(trees, group, holds, least);
    }
  }
  return least.limits();
}

}  // namespace distattn

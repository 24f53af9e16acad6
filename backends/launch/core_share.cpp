#include "backends/launch/core_share.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "backends/identity.hpp"
#include "backends/launch/launcher.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::launch {
namespace {

bool has(const ProcessorSet& set, std::size_t processor) {
  return processor / 64 < set.size() && (set[processor / 64] >> (processor % 64) & 1) != 0;
}

/// In front of the words of the set, the groups and the name of the machine.
struct Head {
  std::uint64_t words, groups, places;
};

/// The first `count` values of `bytes`, which it takes away.
template <class T>
std::vector<T> take(std::span<const std::byte>& bytes, std::uint64_t count) {
  if (count > bytes.size() / sizeof(T)) {
    throw Error(ErrorKind::peer,
                "a rank does not say which processors it may use (it runs another version): start all ranks with one "
                "program");
  }
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes = bytes.subspan(count * sizeof(T));
  return values;
}

/// Whether the kernel could ever have all of these: "0-127", or a list of such ranges.
bool are_of_this_machine(const ProcessorSet& set) {
  std::string text;
  if (!(std::ifstream("/sys/devices/system/cpu/possible") >> text)) return true;
  const std::size_t last = text.find_last_of("-,");
  const auto highest = index(std::atoi(text.c_str() + (last == text.npos ? 0 : last + 1)));
  for (std::size_t processor = highest + 1; processor < 64 * set.size(); ++processor) {
    if (has(set, processor)) return false;
  }
  return true;
}

}  // namespace

CoreClaim own_claim() {
  HostResources host = host_resources();
  while (!host.processors.empty() && host.processors.back() == 0) host.processors.pop_back();
  const bool places = are_of_this_machine(host.processors);
  return {boot_identity(), std::move(host.processors), std::move(host.groups), places};
}

std::vector<std::byte> to_bytes(const CoreClaim& claim) {
  const Head head{claim.processors.size(), claim.groups.size(), claim.places ? 1u : 0u};
  const std::span<const std::byte> parts[] = {
      std::as_bytes(std::span(&head, 1)), std::as_bytes(std::span(claim.processors)),
      std::as_bytes(std::span(claim.groups)), std::as_bytes(std::span(claim.machine))};
  std::size_t size = 0;
  for (const auto& part : parts) size += part.size();
  std::vector<std::byte> bytes(size);
  auto end = bytes.begin();
  for (const auto& part : parts) end = std::copy(part.begin(), part.end(), end);
  return bytes;
}

CoreClaim claim_from(std::span<const std::byte> bytes) {
  const Head head = take<Head>(bytes, 1).front();
  CoreClaim claim;
  claim.places = head.places != 0;
  claim.processors = take<std::uint64_t>(bytes, head.words);
  claim.groups = take<ControlGroup>(bytes, head.groups);
  claim.machine.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return claim;
}

int count_on_machine(std::span<const CoreClaim> claims, std::size_t own) {
  return static_cast<int>(std::count_if(claims.begin(), claims.end(),
                                        [&](const CoreClaim& claim) { return claim.machine == claims[own].machine; }));
}

int count_in_group(std::span<const CoreClaim> claims, std::size_t own, const ControlGroup& group) {
  return static_cast<int>(std::count_if(claims.begin(), claims.end(), [&](const CoreClaim& claim) {
    return claim.machine == claims[own].machine &&
           std::any_of(claim.groups.begin(), claim.groups.end(), [&](const ControlGroup& theirs) {
             return theirs.device == group.device && theirs.inode == group.inode;
           });
  }));
}

namespace {

double share_of(std::span<const CoreClaim> claims, std::size_t own) {
  const CoreClaim& mine = claims[own];
  double cores = 0;
  for (std::size_t processor = 0; processor < 64 * mine.processors.size(); ++processor) {
    if (!has(mine.processors, processor)) continue;
    const auto others = std::count_if(claims.begin(), claims.end(), [&](const CoreClaim& claim) {
      return &claim != &mine && mine.places && claim.places && claim.machine == mine.machine &&
             has(claim.processors, processor);
    });
    cores += 1.0 / static_cast<double>(others + 1);
  }
  for (const ControlGroup& group : mine.groups) {
    cores = std::min(cores, group.quota / count_in_group(claims, own, group));
  }
  return cores;
}

int whole(double cores) {
  constexpr double rounding = 1e-9;  // thirds of twelve processors add up to four
  return std::max(1, static_cast<int>(std::floor(cores + rounding)));
}

}  // namespace

int fair_cores(std::span<const CoreClaim> claims, std::size_t own) { return whole(share_of(claims, own)); }

int cores_together(std::span<const CoreClaim> claims, std::size_t own) {
  double cores = 0;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    if (claims[i].machine == claims[own].machine) cores += share_of(claims, i);
  }
  return whole(cores);
}

}  // namespace distattn::backends::launch

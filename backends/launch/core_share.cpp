#include "backends/launch/core_share.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "backends/launch/launcher.hpp"
#include "distattn/error.hpp"

namespace distattn::backends::launch {
namespace {

bool has(const ProcessorSet& set, std::size_t processor) {
  return processor / 64 < set.size() && (set[processor / 64] >> (processor % 64) & 1) != 0;
}

/// In front of the words of the set and the name of the machine.
struct Head {
  double quota;
  std::uint64_t quota_group, words, places;
};

/// Whether the kernel could ever have all of these: "0-127", or a list of such ranges.
bool are_of_this_machine(const ProcessorSet& set) {
  std::string text;
  if (!(std::ifstream("/sys/devices/system/cpu/possible") >> text)) return true;
  const std::size_t last = text.find_last_of("-,");
  const auto highest = static_cast<std::size_t>(std::atoi(text.c_str() + (last == text.npos ? 0 : last + 1)));
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
  return {boot_identity(), std::move(host.processors), host.quota, host.quota_group, places};
}

std::vector<std::byte> to_bytes(const CoreClaim& claim) {
  const Head head{claim.quota, claim.quota_group, claim.processors.size(), claim.places ? 1u : 0u};
  const std::size_t set_bytes = claim.processors.size() * sizeof(std::uint64_t);
  std::vector<std::byte> bytes(sizeof head + set_bytes + claim.machine.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  if (set_bytes > 0) std::memcpy(bytes.data() + sizeof head, claim.processors.data(), set_bytes);
  if (!claim.machine.empty()) {
    std::memcpy(bytes.data() + sizeof head + set_bytes, claim.machine.data(), claim.machine.size());
  }
  return bytes;
}

CoreClaim claim_from(std::span<const std::byte> bytes) {
  Head head{};
  const bool whole = bytes.size() >= sizeof head;
  if (whole) std::memcpy(&head, bytes.data(), sizeof head);
  if (!whole || head.words > (bytes.size() - sizeof head) / sizeof(std::uint64_t)) {
    throw Error(ErrorKind::peer,
                "a rank does not say which processors it may use (it runs another version) start all ranks with one "
                "program");
  }
  CoreClaim claim{"", ProcessorSet(head.words), head.quota, head.quota_group, head.places != 0};
  const std::size_t set_bytes = head.words * sizeof(std::uint64_t);
  if (set_bytes > 0) std::memcpy(claim.processors.data(), bytes.data() + sizeof head, set_bytes);
  const auto name = bytes.subspan(sizeof head + set_bytes);
  claim.machine.assign(reinterpret_cast<const char*>(name.data()), name.size());
  return claim;
}

int fair_cores(std::span<const CoreClaim> claims, std::size_t own) {
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
  const auto limited_alike = std::count_if(claims.begin(), claims.end(), [&](const CoreClaim& claim) {
    return claim.machine == mine.machine && claim.quota_group == mine.quota_group;
  });
  cores = std::min(cores, mine.quota / static_cast<double>(limited_alike));
  constexpr double rounding = 1e-9;  // thirds of twelve processors add up to four
  return std::max(1, static_cast<int>(std::floor(cores + rounding)));
}

}  // namespace distattn::backends::launch

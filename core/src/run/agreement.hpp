#pragma once
/// What ranks make sure of before they run a plan: that all have the same.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "distattn/engine.hpp"
#include "distattn/error.hpp"
#include "distattn/plan.hpp"

namespace distattn {

/// Rank 0 speaks and all others listen, over the transport of the run itself: every transport can do that, those of a
/// caller and of some of another's ranks included. Each rank makes one call of announce() or hear().
class Agreement {
 public:
  Agreement(Device& device, Transport& transport) : device_(device), transport_(transport) {}

  /// Whether there is somebody to talk to, and a way to. Where the transport reaches no memory of this rank there is no
  /// run either: the executor says so.
  bool possible() const;

  /// Rank 0's plan: its fingerprint, and its schedule, routes and layout for those who left them open.
  struct Decision {
    std::uint64_t fingerprint = 0;
    std::string schedule;
    Routes routes;
    std::string layout{};
  };

  /// Rank 0.
  void announce(const Decision& decision);
  /// Rank 0: there is no plan.
  void announce(const Error& failure);
  /// Every other rank. Throws the failure that rank 0 announced.
  Decision hear();

  /// Ends the run of all ranks with Error(peer) when this rank's plan is another than rank 0's.
  void compare(const Decision& first, std::uint64_t mine);

 private:
  struct Verdict;
  void exchange(Verdict& verdict);
  void exchange(std::span<std::byte> bytes);

  Device& device_;
  Transport& transport_;
};

}  // namespace distattn

#include "backends/ucx/set_up.hpp"

#include <chrono>
#include <fstream>
#include <utility>

#include <fmt/core.h>

#include "backends/patient_call.hpp"

namespace distattn::backends::ucx {
namespace {

/// A worker binds some, and UCX 1.13 tries again and again where none is free.
std::string free_ports() {
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  return last < first || first == 0 ? "" : fmt::format(", or for free ones of the ports {} to {}", first, last);
}

Error late() {
  return {
      ErrorKind::timeout,
      fmt::format("UCX is not set up within the timeout (it waits for a device{}): see UCX_TLS and UCX_NET_DEVICES, "
                  "widen net.ipv4.ip_local_port_range if its ports are taken, or give a longer timeout",
                  free_ports())};
}

}  // namespace

SetUp SetUp::before(RunningClock::time_point deadline, Rank rank, int ranks, const std::optional<std::string>& segments,
                    Control& control) {
  const auto make = [ranks, segments] {
    SetUp made;
    made.context = std::make_unique<Context>(ranks, segments);
    made.near = std::make_unique<Worker>(*made.context);
    made.far = std::make_unique<Worker>(*made.context);
    return made;
  };
  const auto failed_elsewhere = [&control, rank] { control.check(rank, Control::Clock::now()); };
  return call_before<SetUp>(deadline, "set up UCX", make, late, failed_elsewhere);
}

bool reaches_gpus() {
  constexpr auto enough = std::chrono::seconds(20);
  const auto ask = [] { return Context(1, "").reaches(UCS_MEMORY_TYPE_CUDA); };
  return call_before<bool>(RunningClock::now() + enough, "ask UCX", ask, late);
}

}  // namespace distattn::backends::ucx

#include "cli/bench/peaks.hpp"

#include <algorithm>
#include <limits>

#include "cli/run/all_gather.hpp"
#include "cli/run/node_cores.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/registry.hpp"

namespace distattn::cli {

Peak Peaks::measure(const std::string& backend, DType dtype, int threads) {
  if (make_device(backend, {1, 1})->space() != MemorySpace::host) {
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    return {unknown, unknown};
  }
  const std::pair key(dtype, std::min(threads, usable_cores()));
  auto found = meters_.find(key);
  if (found == meters_.end()) {
    PeakMeter meter(dtype, key.second);
    const double bytes_per_s = meter.read_bytes_per_s();
    found = meters_.emplace(key, Meter{std::move(meter), bytes_per_s}).first;
  }
  PeakMeter& meter = found->second.meter;
  meter.measure();
  return {meter.flops_per_s(), found->second.bytes_per_s};
}

Peak Peaks::measure(World& world, const std::string& backend, DType dtype, int threads) {
  if (world.in_process()) return measure(backend, dtype, world.size() * threads);
  const double share = node_cores(world, std::min(threads, usable_cores())).share();  // all begin when all are here
  const Peak here = measure(backend, dtype, threads);
  Peak together{0, 0};
  const Peak mine{here.flops_per_s * share, here.bytes_per_s};
  for (const Peak& each : all_gather<Peak>(world, std::span(&mine, 1))) {
    together.flops_per_s += each.flops_per_s;
    together.bytes_per_s += each.bytes_per_s;
  }
  return together;
}

}  // namespace distattn::cli

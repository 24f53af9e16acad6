#pragma once
/// What the cores reach at most, measured beside what is compared with it.

#include <map>
#include <string>
#include <utility>

#include "cli/tools/peak.hpp"
#include "distattn/launch.hpp"

namespace distattn::cli {

/// NaN where nothing here measures it: devices that are no cores.
struct Peak {
  double flops_per_s, bytes_per_s;
};

class Peaks {
 public:
  /// Measures what `threads` threads of `backend` reach for elements of `dtype`; more threads than cores count as
  /// cores. Call it before and after what is compared with it: the best of all calls stands.
  Peak measure(const std::string& backend, DType dtype, int threads);
  /// What all ranks reach together with `threads` threads each, all at once. Collective.
  Peak measure(World& world, const std::string& backend, DType dtype, int threads);

 private:
  struct Meter {
    PeakMeter meter;
    double bytes_per_s;
  };
  std::map<std::pair<DType, int>, Meter> meters_;
};

}  // namespace distattn::cli

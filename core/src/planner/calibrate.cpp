#include "distattn/calibrate.hpp"

#include <algorithm>
#include <ctime>
#include <map>
#include <vector>

#include "distattn/error.hpp"

namespace distattn {
namespace {

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// The samples of one kind as a curve; none: an empty one.
RateCurve curve_of(const Measurements& measurements, DType dtype, Pass pass, Coverage coverage) {
  std::map<double, std::vector<double>> samples;
  for (const Measurements::Kernel& kernel : measurements.kernels) {
    if (kernel.dtype != dtype || kernel.pass != pass || kernel.coverage != coverage) continue;
    DISTATTN_EXPECT(kernel.tile > 0 && kernel.flops_per_s > 0);
    samples[kernel.tile].push_back(kernel.flops_per_s);
  }
  RateCurve curve;
  for (auto& [tile, rates] : samples) curve.points.push_back({tile, median(rates)});
  return curve;
}

}  // namespace

Machine describe(const Measurements& measurements) {
  Machine machine = nominal_machine();
  machine.measured = measurements.when;
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      RateCurve full = curve_of(measurements, dtype, pass, Coverage::full);
      RateCurve partial = curve_of(measurements, dtype, pass, Coverage::partial);
      if (full.points.empty() || partial.points.empty()) continue;
      machine.rates[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(pass)] =
          KernelRates{std::move(full), std::move(partial)};
    }
  }
  if (measurements.copies.bytes_per_s > 0) machine.near = measurements.copies;
  if (measurements.memory_bytes_per_s > 0) machine.memory_bytes_per_s = measurements.memory_bytes_per_s;
  machine.sources["flops_per_s"] = machine.sources["near"] = machine.sources["memory_bytes_per_s"] =
      "measured here: " + measurements.what;
  return machine;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[sizeof "2026-02-03T04:05:06Z"];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace distattn

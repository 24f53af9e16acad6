#include "cli/tools/calibrate.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <map>
#include <system_error>

#include "cli/tools/text_writer.hpp"
#include "distattn/error.hpp"

namespace distattn {

namespace fs = std::filesystem;

namespace {

/// The curve nearest to `points` (least squares) that never falls: neighbours that fall become their mean. A larger
/// tile is many smaller ones, so a rate that falls was measured while something else ran; left alone, it would make
/// schedules of smaller tiles look faster.
std::vector<RateCurve::Point> never_falling(const std::vector<RateCurve::Point>& points) {
  struct Level {
    double sum;
    std::size_t count;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Level> levels;
  for (const RateCurve::Point& point : points) {
    levels.push_back({point.flops_per_s, 1});
    while (levels.size() > 1 && levels[levels.size() - 2].mean() > levels.back().mean()) {
      const Level last = levels.back();
      levels.pop_back();
      levels.back().sum += last.sum;
      levels.back().count += last.count;
    }
  }
  std::vector<RateCurve::Point> curve;
  for (const Level& level : levels) {
    for (std::size_t i = 0; i < level.count; ++i) curve.push_back({points[curve.size()].tile, level.mean()});
  }
  return curve;
}

/// The samples of one kind as a curve; none: an empty one. Tiles are slower the smaller they are because of what each
/// of them takes besides; where that is known, the rate of those too small to have been measured is that of the
/// smallest.
RateCurve curve_of(const Measurements& measurements, DType dtype, Pass pass, Coverage coverage) {
  std::map<double, double> best;
  for (const Measurements::Kernel& kernel : measurements.kernels) {
    if (kernel.dtype != dtype || kernel.pass != pass || kernel.coverage != coverage) continue;
    DISTATTN_EXPECT(kernel.tile > 0 && kernel.computed_flops > 0 && kernel.seconds > 0);
    const double besides_s = measurements.tiles.seconds(pass, kernel.head_dim) +
                             kernel.computed_pairs * measurements.tiles.pair_s[pass] +
                             (kernel.tiles > 0 ? measurements.tiles.launch_s[pass] / kernel.tiles : 0);
    double& rate = best[kernel.tile];
    rate = std::max(rate, kernel.computed_flops / std::max(kernel.seconds - besides_s, kernel.seconds / 2));
  }
  RateCurve curve;
  for (const auto& [tile, rate] : best) curve.points.push_back({tile, rate});
  curve.points = never_falling(curve.points);
  const bool costs_known = !measurements.tiles.points[pass].empty();
  if (costs_known && !curve.points.empty() && curve.points.front().tile > 1) {
    curve.points.insert(curve.points.begin(), {1, curve.points.front().flops_per_s});
  }
  return curve;
}

/// By rank, the median over all tiles of the mean time of all ranks to its own. Empty if ranks are alike: tiles of
/// equal ranks differ by a few percent, too.
std::vector<double> speeds_of(const std::vector<Measurements::Kernel>& kernels) {
  constexpr double alike = 0.06;
  std::vector<std::vector<double>> parts;  // by rank
  for (const Measurements::Kernel& kernel : kernels) {
    parts.resize(std::max(parts.size(), kernel.by_rank.size()));
    for (std::size_t rank = 0; rank < kernel.by_rank.size(); ++rank)
      parts[rank].push_back(kernel.seconds / kernel.by_rank[rank]);
  }
  std::vector<double> speeds;
  for (std::vector<double>& of_rank : parts) {
    const auto middle = of_rank.begin() + static_cast<std::ptrdiff_t>(of_rank.size() / 2);
    std::nth_element(of_rank.begin(), middle, of_rank.end());
    speeds.push_back(std::round(*middle * 1000) / 1000);
  }
  const auto is_alike = [](double speed) { return std::abs(speed - 1) <= alike; };
  if (std::all_of(speeds.begin(), speeds.end(), is_alike)) speeds.clear();
  return speeds;
}

/// Only a file is replaced by one: what else has its name goes first, a folder where it is empty.
void remove_what_is_no_file(const fs::path& path) {
  std::error_code failure;
  if (fs::is_regular_file(path, failure) || !fs::exists(fs::symlink_status(path, failure))) return;
  if (fs::remove(path, failure); failure) {
    throw Error(ErrorKind::environment,
                fmt::format("cannot store the calibration in {} (what is there is no file: {}): "
                            "move it away",
                            path.string(), failure.message()));
  }
}

}  // namespace

Machine describe(const Measurements& measurements) {
  Machine machine = nominal_machine();
  machine.measured = measurements.when;
  machine.backend = measurements.backend;
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      RateCurve full = curve_of(measurements, dtype, pass, Coverage::full);
      RateCurve partial = curve_of(measurements, dtype, pass, Coverage::partial);
      if (full.points.empty() || partial.points.empty()) continue;
      machine.rates[dtype][pass] = KernelRates{std::move(full), std::move(partial)};
    }
  }
  machine.rates_by = RatesBy::launch;
  machine.tiles = measurements.tiles;
  machine.few = measurements.few;
  if (measurements.copies.bytes_per_s > 0) machine.near = measurements.copies;
  if (measurements.memory_bytes_per_s > 0) machine.memory_bytes_per_s = measurements.memory_bytes_per_s;
  machine.transports = measurements.transports;
  for (auto& [transport, measured] : machine.transports) measured.speeds = speeds_of(measurements.kernels);
  const std::string source = "measured here: " + measurements.what;
  for (const char* const field : {"flops_per_s", "tiles", "memory_bytes_per_s"}) machine.sources[field] = source;
  if (measurements.copies.bytes_per_s > 0) machine.sources["near"] = source;
  if (!measurements.transports.empty()) machine.sources["transports"] = source;
  if (machine.few.queries > 0) machine.sources["few_queries"] = machine.sources["tiles"];
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

void require_calibration_folder() {
  const fs::path path = calibration_file();
  if (path.empty()) {
    throw Error(ErrorKind::environment,
                "cannot store the calibration (neither XDG_CACHE_HOME nor HOME names a folder): set one of them");
  }
  const fs::path folder = path.parent_path();
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (!failure && ::access(folder.c_str(), W_OK) != 0) failure.assign(errno, std::generic_category());
  if (failure) {
    throw Error(ErrorKind::environment, fmt::format("cannot store the calibration in {} ({}): set XDG_CACHE_HOME to a "
                                                    "folder that you may write to",
                                                    folder.string(), failure.message()));
  }
  remove_what_is_no_file(path);
}

void store_calibration(const Machine& machine) {
  require_calibration_folder();
  write_file(calibration_file(), to_json(machine));
}

}  // namespace distattn

#include "cli/bench/bench_rounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "cli/run/ranks.hpp"
#include "distattn/simulate.hpp"

namespace distattn::cli {
namespace {

constexpr std::array passes = {Pass::forward, Pass::backward};

double ratio_of(const Timing& timing, const std::optional<Timeline>& predicted) {
  return predicted ? timing.median_s / predicted->seconds : std::numeric_limits<double>::quiet_NaN();
}

const Timing& timing_of(const RunResult& result, Pass pass) {
  return pass == Pass::forward ? result.forward : result.backward;
}

/// The nearest number of three binary digits: documents make tiles of many sizes, and calibrating each
/// would take longer than the rest.
std::int64_t about(double tile) {
  int exponent = 0;
  const double digits = std::round(8 * std::frexp(tile, &exponent));
  return std::llround(std::ldexp(digits, exponent - 3));
}

/// Calibrates what one plan computes, and nothing else.
class RowCalibration {
 public:
  RowCalibration(const Calibration& calibration, const RowRun& row)
      : row_(row), calibration_(calibration), options_(calibration.options) {
    const AttentionPlan& plan = *row.plan;
    const Problem& problem = plan.outline(Pass::forward).sharding.problem;
    dtype_ = problem.dtype;
    options_.heads = problem.heads;
    options_.kv_heads = problem.kv_heads;
    options_.head_dim = problem.head_dim;
    options_.value_dim = problem.value_dim;
    for (const Pass pass : passes) {
      for (Rank rank = 0; plan.has(pass) && rank < plan.ranks(); ++rank) {
        for (const auto& work : sketch(plan.outline(pass), plan.tiles(pass), rank, plan.program(pass, rank)).works) {
          tiles_.insert({std::min(about(work.side(RatesBy::launch)), largest_calibrated_tile), work.coverage});
        }
      }
    }
  }

  void sample() {
    Kernels& kernels = samples_.emplace_back();
    for (const auto& [tile, coverage] : tiles_) {
      const Kernels one = sample_launches(options_, dtype_, coverage, tile);
      kernels.insert(kernels.end(), one.begin(), one.end());
    }
  }

  /// This machine by the medians of the last `count` samples, and by nothing else where they have a tile of a kind:
  /// what was measured at another time does not belong on one curve with them.
  Machine machine(std::size_t count) const {
    Measurements measurements = calibration_.measurements;
    std::erase_if(measurements.kernels, [&](const Measurements::Kernel& kernel) {
      return kernel.dtype == dtype_ && std::any_of(tiles_.begin(), tiles_.end(),
                                                   [&](const auto& tile) { return tile.second == kernel.coverage; });
    });
    for (std::size_t kind = 0; kind < samples_.back().size(); ++kind) {
      std::vector<double> seconds;
      for (std::size_t i = samples_.size() - count; i < samples_.size(); ++i) {
        seconds.push_back(samples_[i][kind].seconds);
      }
      measurements.kernels.push_back(samples_.back()[kind]);
      measurements.kernels.back().seconds = median(std::move(seconds));
    }
    return machine_for(row_.world, describe(measurements), row_.schedule);
  }
  Machine machine() const { return machine(samples_.size()); }

 private:
  using Kernels = std::vector<Measurements::Kernel>;

  const RowRun& row_;
  const Calibration& calibration_;
  CalibrationOptions options_;  // with the row's heads
  DType dtype_ = DType::fp32;
  std::set<std::pair<std::int64_t, Coverage>> tiles_;
  std::vector<Kernels> samples_;
};

}  // namespace

Rounds measure_once(const RowRun& row, const Machine& machine) {
  Rounds rounds{
      run_sharded(row.world, row.plan, row.inputs, row.options), predict(*row.plan, machine, row.options), {}};
  for (const Pass pass : passes) {
    rounds.ratios[pass] = ratio_of(timing_of(rounds.result, pass), rounds.predictions.of(pass));
  }
  return rounds;
}

Rounds measure_calibrated(const RowRun& row, const Calibration& calibration) {
  constexpr int runs_a_round = 2;
  const auto& [world, plan, inputs, options, schedule] = row;
  RowCalibration beside(calibration, row);
  std::vector<Timing> forward, backward;
  PerPass<std::vector<double>> ratios;
  Rounds all;
  beside.sample();
  for (int done = 0; done < options.runs; done += runs_a_round) {
    RunOptions some = options;
    some.runs = std::min(runs_a_round, options.runs - done);
    some.warmups = done == 0 ? options.warmups : std::min(1, options.warmups);
    RunResult result = run_sharded(world, plan, inputs, some);
    beside.sample();
    const Predictions predictions = predict(*plan, beside.machine(2), options);
    for (const Pass pass : passes) {
      if (!plan->has(pass)) continue;
      ratios[pass].push_back(ratio_of(timing_of(result, pass), predictions.of(pass)));
    }
    forward.push_back(std::move(result.forward));
    if (plan->has(Pass::backward)) backward.push_back(std::move(result.backward));
    all.result.ranks = std::move(result.ranks);
  }
  all.result.forward = merge(std::move(forward));
  if (!backward.empty()) all.result.backward = merge(std::move(backward));
  all.predictions = predict(*plan, beside.machine(), options);
  for (const Pass pass : passes) {
    if (!ratios[pass].empty()) all.ratios[pass] = median(std::move(ratios[pass]));
  }
  return all;
}

}  // namespace distattn::cli

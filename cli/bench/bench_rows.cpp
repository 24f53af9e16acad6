#include "cli/bench/bench_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>

#include "cli/run/agreement.hpp"
#include "cli/run/node_cores.hpp"
#include "cli/run/ranks.hpp"
#include "cli/run/run_report.hpp"
#include "cli/run/sink_logits.hpp"
#include "cli/terminal/console.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

double known(double value) { return std::isfinite(value) ? value : unknown_number; }

/// One pass of a run: run's fields, those of this pass on top, and what only bench measures.
BenchRow row_of(const RunReport& report, Pass pass, const Peak& peak, double ratio) {
  const int ranks = report.plan.ranks();
  const Timing& timing = report.timing(pass);
  BenchRow row;
  static_cast<RunRow&>(row) = row_of(report);
  row.figures = row_of(report, pass);
  row.pass = pass;
  row.runs = report.options.runs;
  row.least_s = timing.least_s;
  row.p10_s = timing.p10_s;
  row.p90_s = timing.p90_s;
  row.gflops_per_rank = row.figures.gflops / ranks;
  row.peak_gflops = peak.flops_per_s / 1e9;
  row.share = row.figures.gflops * 1e9 / peak.flops_per_s;
  row.bytes_per_s = row.figures.bytes_sent_mean * ranks / timing.median_s;
  row.peak_bytes_per_s = peak.bytes_per_s;
  row.exposed_s = timing.timeline.exposed_s(ranks);
  row.idle = timing.timeline.idle_share(ranks);
  row.ratio_to_prediction = known(ratio);
  if (!report.errors) return row;
  row.max_error = report.errors->largest(pass);
  row.wrong = report.errors->wrong(pass);
  row.ok = report.errors->within_tolerance(pass);
  return row;
}

class Bench {
 public:
  Bench(World& launched, const BenchRequest& request, Peaks& peaks)
      : launched_(launched), request_(request), peaks_(peaks) {}

  void measure_all() {
    auto [problems, none] = problems_of(combinations(request_.problem));
    skipped_ = std::move(none);
    for (const ScheduleOptions& schedule : each_mode(request_.schedule)) {
      for (const Problem& problem : problems) {
        const std::vector<LayerKind> kinds = kinds_of(problem, request_.problem);
        const std::string backend = backend_for(kinds, problems.size() > 1);
        for (const int ranks : backend.empty() ? std::vector<int>() : rank_counts(launched_, schedule.ranks)) {
          WorldOf world(launched_, ranks);
          measure_all(world.get(), kinds, on_nodes_of(world.get(), schedule), backend);
        }
      }
    }
  }

  std::vector<BenchRow> rows() {
    if (rows_.empty()) {
      refuse(fmt::format("no schedule is left to measure ({}): choose another schedule, other ranks or more memory",
                         fmt::join(skipped_, "; ")));
    }
    for (const std::string& reason : skipped_) note("skipped " + reason);
    return std::move(rows_);
  }

 private:
  Passes passes() const { return request_.backward ? Passes::both : Passes::forward; }

  /// Empty where none computes the kinds, which are those of one shape of several. Masks make no difference to it.
  std::string backend_for(const std::vector<LayerKind>& kinds, bool of_several) {
    std::string backend;
    try {
      decided_by_all(launched_, [&] { backend = choose_backend(request_.launch, kinds.front().problem, passes()); });
    } catch (const Error& error) {
      if (!of_several || error.kind() != ErrorKind::usage) throw;
      skipped_.push_back(fmt::format("{}: {}", describe(kinds.front().problem), error.what()));
      return "";
    }
    return backend;
  }

  void measure_all(World& world, const std::vector<LayerKind>& kinds, const ScheduleOptions& schedule,
                   const std::string& backend) {
    const Problem& problem = kinds.front().problem;
    const int threads = choose_threads(request_.launch.device.threads, world);
    const RunOptions options{backend, request_.launch.device_options(threads), request_.runs, request_.warmups};
    const Machine machine = machine_of(world, schedule);
    const std::size_t before = rows_.size();
    for (const std::string& name : names_of(schedule, problem, world.size())) {
      progress_.show(
          fmt::format("{} rows; now {} on {} ranks, {}", rows_.size(), name, world.size(), describe(problem)));
      auto prepared = try_to_prepare(world, name, kinds, threads, schedule, passes());
      if (const auto* const why = std::get_if<WhyNot>(&prepared); why != nullptr && why->concerns_one_schedule()) {
        skipped_.push_back(skipped_text(*why));
        continue;
      }
      for (const SharedPlan& plan : or_refuse(std::move(prepared))) {
        const Inputs inputs = random_inputs(plan->outline(Pass::forward).sharding.problem);
        measure({world, plan, inputs, options, schedule}, machine);
      }
    }
    progress_.done();
    if (backends_.insert(backend).second) note_other_backend(machine, backend);
    if (rows_.size() > before) note_crowd(world, threads);
  }

  Inputs random_inputs(const Problem& problem) const {
    const ProblemOptions& common = request_.problem.common;
    Inputs inputs = Inputs::random(problem, common.seed);
    inputs.set_dropout_seed(common.dropout_seed);
    bring_sink_logits(inputs, common.sink_logits, problem.dtype, common.seed);
    return inputs;
  }

  void measure(const RowRun& row, const Machine& machine) {
    const AttentionPlan& plan = *row.plan;
    const Sharding& sharding = plan.outline(Pass::forward).sharding;
    const auto peak = [&] {
      return peaks_.measure(row.world, row.options.backend, sharding.problem.dtype, row.options.device.threads);
    };
    peak();
    const Rounds rounds =
        request_.calibration ? measure_calibrated(row, *request_.calibration) : measure_once(row, machine);
    const Peak best = peak();
    std::optional<Errors> errors;
    if (request_.check) {
      errors = check_results(row.world, plan, row.inputs, rounds.result.ranks, passes());
    }
    const RunReport report{row.world, *row.plan, row.options, rounds.result, rounds.predictions, errors};
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      if (plan.has(pass)) rows_.push_back(row_of(report, pass, best, rounds.ratios[pass]));
    }
  }

  void note_crowd(World& world, int threads) {
    const NodeCores cores = node_cores(world, threads);
    if (!cores.are_crowded() || !crowded_.insert(world.size()).second) return;
    note(fmt::format("{} ranks x {} threads share {} cores", world.local_size(), threads, cores.cores));
  }

  World& launched_;
  const BenchRequest& request_;
  Peaks& peaks_;
  std::vector<BenchRow> rows_;
  std::vector<std::string> skipped_;
  std::set<std::string> backends_;  // that rows computed with
  std::set<int> crowded_;           // numbers of ranks that have more threads than cores
  Progress progress_;
};

}  // namespace

std::vector<BenchRow> bench_rows(World& launched, const BenchRequest& request, Peaks& peaks) {
  Bench bench(launched, request, peaks);
  bench.measure_all();
  return bench.rows();
}

std::string command_text(const BenchRequest& request) {
  std::string text =
      fmt::format("{}{}, {}, -n {} -w {}{}{}, backend {} ({})", fmt::join(request.schedule.schedules, ","),
                  given_text(request.schedule), request.backward ? "both passes" : "forward", request.runs,
                  request.warmups, request.check ? ", --check" : "", request.calibrate ? ", --calibrate" : "",
                  request.launch.backend, describe(request.launch.device));
  for (const ProblemOptions& each : combinations(request.problem)) text += "; " + describe(each);
  text += text_of(request.problem.masks_together);
  return text;
}

}  // namespace distattn::cli

#include "bench_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <set>

#include "console.hpp"
#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "run_report.hpp"

namespace distattn::cli {
namespace {

/// One pass of a run as an object: run's fields, those of this pass on top, and what only bench measures.
Json row_of(const RunReport& report, Pass pass, const Peak& peak, double ratio) {
  const AttentionPlan& plan = *report.prepared.plan;
  const PassReport passed = pass_of(report, pass);
  const Timing& timing = passed.timing;
  Json row = json_of(report);
  add_pass(passed, row);
  row["pass"] = name_of(pass);
  row["runs"] = report.options.runs;
  row["least_s"] = timing.least_s;
  row["p10_s"] = timing.p10_s;
  row["p90_s"] = timing.p90_s;
  row["gflops_per_rank"] = number_or_null(passed.gflops() / plan.ranks());
  row["peak_gflops"] = number_or_null(peak.flops_per_s / 1e9);
  row["share"] = number_or_null(passed.gflops() * 1e9 / peak.flops_per_s);
  row["bytes_per_s"] = mean(passed.counts().bytes_sent) * plan.ranks() / timing.median_s;
  row["peak_bytes_per_s"] = number_or_null(peak.bytes_per_s);
  row["exposed_s"] = timing.timeline.exposed_s(plan.ranks());
  row["idle"] = timing.timeline.idle_share(plan.ranks());
  row["ratio_to_prediction"] = number_or_null(ratio);
  row["max_error"] = report.errors ? number_or_null(report.errors->largest(pass)) : Json(nullptr);
  row["wrong"] = report.errors ? Json(report.errors->wrong(pass)) : Json(nullptr);
  row["ok"] = report.errors ? Json(report.errors->within_tolerance(pass)) : Json(nullptr);
  return row;
}

class Bench {
 public:
  Bench(const BenchRequest& request, Peaks& peaks) : request_(request), peaks_(peaks) {}

  void measure_all(const Problem& problem) {
    for (const std::int64_t count : request_.schedule.ranks) {
      const int ranks = static_cast<int>(count), threads = choose_threads(request_.launch.threads, ranks);
      const RunOptions options{choose_backend(request_.launch, problem, passes()),
                               threads,
                               request_.runs,
                               request_.warmups,
                               request_.launch.provider,
                               request_.launch.gradient_order(),
                               request_.launch.step_graphs()};
      routes_of(request_.schedule, machine_of(request_.schedule), ranks);  // wrong ones are no reason to skip a row
      for (const std::string& name : names_of(request_.schedule, problem, ranks))
        measure(name, problem, ranks, options);
    }
  }

  std::vector<Json> rows() {
    if (rows_.empty()) {
      refuse(fmt::format("no schedule is left to measure ({}) choose another schedule, other ranks or more memory",
                         fmt::join(skipped_, "; ")));
    }
    for (const std::string& reason : skipped_) note("skipped " + reason);
    return std::move(rows_);
  }

 private:
  Passes passes() const { return request_.backward ? Passes::both : Passes::forward; }

  /// Nothing, and the reason among the skipped, for what does not apply or needs more than --memory.
  std::optional<Prepared> prepared_or_skipped(World& world, const std::string& name, const Problem& problem,
                                              int threads) {
    const auto skip = [&](const std::string& reason) {
      skipped_.push_back(fmt::format("{} on {} ranks: {}", name, world.size(), reason));
      return std::optional<Prepared>();
    };
    if (name != "auto") {
      const auto resolved = resolve_pair(name, problem, world.size());
      if (const auto* reason = std::get_if<std::string>(&resolved)) return skip(*reason);
    }
    AttentionOptions resolved;
    try {
      resolved = decided_options(world, name, problem, threads, request_.schedule, passes());
    } catch (const Error& error) {
      if (name != "auto") throw;
      return skip(error.what());  // none of those that it chooses from fits
    }
    const auto plan = std::make_shared<const AttentionPlan>(problem, world.size(), resolved);
    const std::string why = why_too_large(*plan, request_.schedule);
    return why.empty() ? std::optional(Prepared{plan->name(), plan}) : skip(why);
  }

  void measure(const std::string& name, const Problem& problem, int ranks, const RunOptions& options) {
    progress_.show(fmt::format("{} rows; now {} on {} ranks, {} tokens", rows_.size(), name, ranks, problem.seq_q));
    World world = World::of_threads(ranks);
    const auto found = prepared_or_skipped(world, name, problem, options.threads);
    if (!found) return;
    const Prepared& prepared = *found;
    const Inputs inputs = Inputs::random(shape_of(problem), request_.problem.seed);
    const auto peak = [&] { return peaks_.measure(options.backend, problem.dtype, ranks * options.threads); };
    peak();
    const Machine machine = machine_of(request_.schedule);
    const Rounds rounds = request_.calibration
                              ? measure_calibrated(world, prepared, inputs, options, *request_.calibration)
                              : measure_once(world, prepared, inputs, options, machine);
    const Peak best = peak();
    std::optional<Errors> errors;
    if (request_.check) {
      errors = check_results(world, prepared.plan->outline(Pass::forward).sharding, inputs, rounds.result.ranks,
                             passes(), prepared.plan->counts(Pass::forward).steps);
    }
    const RunReport report{world, prepared, options, rounds.result, rounds.predictions, errors};
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      if (prepared.plan->has(pass)) rows_.push_back(row_of(report, pass, best, rounds.ratio(pass)));
    }
    progress_.done();
    if (backends_.insert(options.backend).second) note_other_backend(machine, options.backend);
    if (ranks * options.threads > usable_cores() && crowded_.insert(ranks).second) {
      note(fmt::format("{} ranks x {} threads share {} cores", ranks, options.threads, usable_cores()));
    }
  }

  const BenchRequest& request_;
  Peaks& peaks_;
  std::vector<Json> rows_;
  std::vector<std::string> skipped_;
  std::set<std::string> backends_;  // that rows computed with
  std::set<int> crowded_;           // numbers of ranks that have more threads than cores
  Progress progress_;
};

}  // namespace

std::vector<Json> bench_rows(const BenchRequest& request, Peaks& peaks) {
  for (const std::string& name : {request.launch.transport, request.launch.bootstrap}) {
    if (!name.empty() && name != "inproc") {
      refuse(
          fmt::format("{} is not measured by bench (its ranks are threads of one process) use run -n with -w", name));
    }
  }
  if (request.problem.seq.empty()) refuse("--seq is missing (the shape is not complete) add it");
  Bench bench(request, peaks);
  for (const std::int64_t seq : request.problem.seq) {
    bench.measure_all(
        problem_of(request.problem, shape_of(request.problem, seq), request.problem.dtype.value_or(DType::fp32)));
  }
  return bench.rows();
}

}  // namespace distattn::cli

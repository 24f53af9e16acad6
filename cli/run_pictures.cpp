#include "run_pictures.hpp"

#include "distattn/draw.hpp"
#include "distattn/io.hpp"

namespace distattn::cli {
namespace {

/// Calls draw(drawings) with every pass's schedule and timelines.
template <class Draw>
std::string drawn(const AttentionPlan& plan, const Predictions& predictions, const RunResult& result, Draw draw) {
  std::vector<Schedule> schedules;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (plan.has(pass)) schedules.push_back(plan.schedule(pass));
  }
  std::vector<Drawing> drawings;
  for (const Schedule& schedule : schedules) {
    const Pass pass = schedule.outline.pass;
    Drawing drawing{&schedule, {}};
    const auto& predicted = predictions.of(pass);
    if (predicted) drawing.panels.push_back({"predicted on " + predictions.machine, &*predicted});
    drawing.panels.push_back(
        {"measured", pass == Pass::forward ? &result.forward.timeline : &result.backward.timeline});
    drawings.push_back(std::move(drawing));
  }
  return draw(drawings);
}

}  // namespace

Predictions predict(const AttentionPlan& plan, const Machine& machine, int threads) {
  const DType dtype = plan.outline(Pass::forward).sharding.problem.dtype;
  Predictions predictions{machine.name, std::nullopt, std::nullopt};
  if (!machine.states(dtype)) return predictions;
  predictions.forward = plan.predict(Pass::forward, machine, threads);
  if (plan.has(Pass::backward)) predictions.backward = plan.predict(Pass::backward, machine, threads);
  return predictions;
}

void write_svg(const std::filesystem::path& path, const AttentionPlan& plan, const Predictions& predictions,
               const RunResult& result) {
  write_file(path, drawn(plan, predictions, result, to_svg));
}

void write_trace(const std::filesystem::path& path, const AttentionPlan& plan, const Predictions& predictions,
                 const RunResult& result) {
  write_file(path, drawn(plan, predictions, result, to_trace));
}

}  // namespace distattn::cli

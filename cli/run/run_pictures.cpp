#include "cli/run/run_pictures.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "cli/terminal/console.hpp"
#include "cli/tools/draw.hpp"
#include "distattn/error.hpp"

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

Predictions predict(const AttentionPlan& plan, const Machine& machine, const RunOptions& options) {
  const DType dtype = plan.outline(Pass::forward).sharding.problem.dtype;
  Predictions predictions{machine.name, std::nullopt, std::nullopt};
  if (!machine.states(dtype) || !machine.describes(options.backend)) return predictions;
  predictions.forward = plan.predict(Pass::forward, machine, options.device.threads);
  if (plan.has(Pass::backward)) predictions.backward = plan.predict(Pass::backward, machine, options.device.threads);
  return predictions;
}

void note_other_backend(const Machine& machine, const std::string& backend) {
  if (machine.describes(backend)) return;
  note(
      fmt::format("nothing is predicted for backend {} (machine {} was measured with {}): measure it with bench "
                  "--calibrate --backend {}",
                  backend, machine.name, machine.backend, backend));
}

PictureFiles::PictureFiles(const std::string& svg, const std::string& trace,
                           const std::vector<std::filesystem::path>& others) {
  const auto place = [](const std::filesystem::path& path) {
    std::error_code failed;  // whoever writes there says why it cannot be written
    const std::filesystem::path known = std::filesystem::weakly_canonical(std::filesystem::absolute(path), failed);
    return failed ? path : known;
  };
  for (const std::string& picture : {svg, trace}) {
    for (const auto& other : others) {
      if (picture.empty() || place(picture) != place(other)) continue;
      refuse(fmt::format("the picture {} is a result of --out too (one would replace the other): name another file",
                         picture));
    }
  }
  if (!svg.empty() && !trace.empty() && place(svg) == place(trace)) {
    refuse(fmt::format("--svg and --trace are both {} (one would replace the other): name two files", svg));
  }
  if (!svg.empty()) svg_.emplace(svg);
  if (!trace.empty()) trace_.emplace(trace);
}

void PictureFiles::commit(const AttentionPlan& plan, const Predictions& predictions, const RunResult& result) {
  if (svg_) svg_->commit(drawn(plan, predictions, result, to_svg));
  if (trace_) trace_->commit(drawn(plan, predictions, result, to_trace));
}

}  // namespace distattn::cli

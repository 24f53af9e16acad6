#include "cli/run/run_pictures.hpp"

#include <fmt/format.h>

#include <utility>

#include "cli/terminal/console.hpp"
#include "cli/tools/draw.hpp"
#include "cli/tools/page.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

/// A schedule and its timelines for each pass.
struct Drawn {
  std::vector<Schedule> schedules;
  std::vector<Drawing> drawings;
};

Drawn drawn(const AttentionPlan& plan, const Predictions& predictions, const RunResult& result) {
  Drawn all;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (plan.has(pass)) all.schedules.push_back(plan.schedule(pass));
  }
  for (const Schedule& schedule : all.schedules) {
    const Pass pass = schedule.outline.pass;
    Drawing drawing{&schedule, {}};
    const auto& predicted = predictions.of(pass);
    if (predicted) drawing.panels.push_back({"predicted on " + predictions.machine, &*predicted});
    drawing.panels.push_back(
        {"measured", pass == Pass::forward ? &result.forward.timeline : &result.backward.timeline});
    all.drawings.push_back(std::move(drawing));
  }
  return all;
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

PictureFiles::PictureFiles(const PicturePaths& paths, const std::vector<std::filesystem::path>& others) {
  const std::pair<const char*, const std::string&> asked[] = {
      {"--svg", paths.svg}, {"--trace", paths.trace}, {"--html", paths.html}};
  for (const auto& [option, path] : asked) {
    for (const auto& other : others) {
      if (path.empty() || !is_one_place(path, other)) continue;
      refuse(fmt::format("the picture {} is a result of --out too (one would replace the other): name another file",
                         path));
    }
    for (const auto& [earlier, other] : asked) {
      if (&other == &path) break;
      if (path.empty() || other.empty() || !is_one_place(path, other)) continue;
      refuse(
          fmt::format("{} and {} are both {} (one would replace the other): name two files", earlier, option, other));
    }
  }
  if (!paths.svg.empty()) svg_.emplace(paths.svg);
  if (!paths.trace.empty()) trace_.emplace(paths.trace);
  if (!paths.html.empty()) html_.emplace(paths.html);
}

void PictureFiles::commit(const AttentionPlan& plan, const Predictions& predictions, const RunResult& result) {
  if (!svg_ && !trace_ && !html_) return;
  const Drawn all = drawn(plan, predictions, result);
  if (svg_) svg_->commit(to_svg(all.drawings));
  if (trace_) trace_->commit(to_trace(all.drawings));
  if (!html_) return;
  Page page(fmt::format("{} on {} ranks", plan.name(), plan.ranks()));
  page.add(plan.name(), all.drawings);
  html_->commit(page.finish());
  note_coarser(page);
}

}  // namespace distattn::cli

#pragma once
/// Prediction next to measurement: what a run would have taken, and both as pictures.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/run/prepared.hpp"
#include "cli/run/sharded_run.hpp"
#include "cli/run/written_files.hpp"
#include "cli/tools/text_writer.hpp"
#include "distattn/machine.hpp"

namespace distattn::cli {

/// Predicted timelines; nothing where the machine states no rates for the element type, or those of another backend.
struct Predictions {
  std::string machine;
  std::optional<Timeline> forward, backward;

  const std::optional<Timeline>& of(Pass pass) const { return pass == Pass::forward ? forward : backward; }
};

Predictions predict(const AttentionPlan& plan, const Machine& machine, const RunOptions& options);
/// Says so where nothing is predicted because another backend was measured.
void note_other_backend(const Machine& machine, const std::string& backend);

/// Paths of pictures; an empty one is none.
struct PicturePaths {
  std::string svg, trace, html;
};

/// Where pictures of the passes' timelines go, predicted next to measured: as SVG, as trace events, and as a page.
class PictureFiles {
 public:
  /// Opens the files, before anything is computed. Throws Error(environment) where it cannot, and Error(usage) for one
  /// path for two of them or one of `others`, which are written too.
  PictureFiles(const PicturePaths& paths, const std::vector<std::filesystem::path>& others);
  void commit(const AttentionPlan& plan, const Predictions& predictions, const RunResult& result);

 private:
  std::optional<TextWriter> svg_, trace_, html_;
};

}  // namespace distattn::cli

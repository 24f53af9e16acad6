#pragma once
/// The papers' attention-only figures beside ours.

#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace distattn {

struct PaperRow {
  std::string what, where;  ///< the quantity; table, figure or section of the paper
  double published = 0;     ///< NaN: it gives no number here
  double ours = 0;
  std::string unit;
  std::string note;  ///< why they differ, where they do

  /// NaN where nothing was published; ours itself where 0 was.
  double relative_difference() const { return published != 0 ? ours / published - 1 : ours; }
};

struct PaperTable {
  std::string title, source;
  std::string scope;  ///< what of the paper is not here, and why
  std::vector<PaperRow> rows;
};

/// "attention2d", "burstattention", "distflashattn"
std::vector<std::string> paper_names();

/// Plans, proves nothing, simulates: every row's own quantity is computed from the schedules. Throws Error(usage) with
/// the names there are for one that is not.
PaperTable compare_with_paper(const std::string& name);

}  // namespace distattn
#pragma GCC visibility pop

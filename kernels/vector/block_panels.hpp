#pragma once
/// What all queries of a block see, panel by panel.

#include "kernels/vector/attend_scratch.hpp"
#include "kernels/vector/visible.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// What the panels of a block see, the same for every head.
class BlockPanels {
 public:
  BlockPanels(const AttendPass& pass, int queries) : pass_(pass), queries_(queries) {
    for (int row = 0; row < queries; row += panel_width) {
      const PanelKeys& keys = at(row) = PanelKeys(pass.begin + row, pass.end + row, {0, none});
      see_few_ = see_few_ || see_few(keys.panel, keys.begin, keys.end, panel_width);
    }
    seen_ = hull();
  }
  Range seen() const { return seen_; }
  const PanelKeys& operator[](int row) const { return panels_[row / panel_width]; }
  /// Looks at keys [from, to) alone, where that is not what panels see anyway. Returns whether one sees any.
  bool look_at(int from, int to) {
    if (!see_few_) return true;
    for (int row = 0; row < queries_; row += panel_width) {
      at(row) = PanelKeys(pass_.begin + row, pass_.end + row, {from, to});
    }
    return !hull().empty();
  }

 private:
  PanelKeys& at(int row) { return panels_[row / panel_width]; }
  Range hull() const {
    Range all{none, 0};
    for (int row = 0; row < queries_; row += panel_width) {
      all = {smaller(all.from, (*this)[row].panel.first), bigger(all.to, (*this)[row].panel.last)};
    }
    return all;
  }

  const AttendPass& pass_;
  int queries_;
  bool see_few_ = false;
  Range seen_;
  PanelKeys panels_[most_panels];
};

}  // namespace distattn::kernels::vector::DISTATTN_ISA

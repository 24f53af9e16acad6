#pragma once
/// A page of HTML to look at: the mask and who computes it, layouts, timelines, rows. It needs no other file and no
/// network.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/tools/draw.hpp"

namespace distattn {

/// A table that a reader of the page may sort.
struct PageTable {
  struct Head {
    std::string text, meaning;
  };
  struct Cell {
    std::string text;
    std::optional<double> value{};  ///< what it is sorted by; nothing: the text
  };
  struct Row {
    std::vector<Cell> cells;
    std::optional<std::size_t> schedule{};  ///< that the page draws, by the order of Page::add
    Pass pass = Pass::forward;
  };
  std::vector<Head> heads;
  std::vector<Row> rows;
};

/// Takes schedules one after the other and keeps none of them.
class Page {
 public:
  /// The most text of a page that holds all tiles, messages and steps; what exceeds it is drawn coarser.
  static constexpr std::size_t usual_bytes = std::size_t{8} << 20;

  /// `title` may hold any bytes, as the other names may. Details of all schedules together take at most `most_bytes`.
  explicit Page(std::string title, std::size_t most_bytes = usual_bytes)
      : title_(std::move(title)), most_bytes_(most_bytes) {}

  /// Adds the passes of one schedule. A pass whose details do not fit is added without them: tiles in cells of a grid,
  /// steps joined, and no messages.
  void add(const std::string& name, std::span<const Drawing> passes);

  std::size_t schedules() const { return schedules_.size(); }
  /// The text of all schedules that were added.
  std::size_t bytes() const { return bytes_; }
  /// "ring forward": the passes without their details.
  const std::vector<std::string>& coarser() const { return coarser_; }

  std::string finish(const PageTable& table = {}) const;

 private:
  std::string title_;
  std::size_t most_bytes_;
  std::vector<std::string> schedules_;  // JSON
  std::size_t bytes_ = 0;
  std::vector<std::string> coarser_;
};

}  // namespace distattn

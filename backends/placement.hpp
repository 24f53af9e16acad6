#pragma once
/// Where the parts of a program's buffers lie during a run.

#include <vector>

#include "distattn/engine.hpp"
#include "kernels/arguments.hpp"

namespace distattn::backends {

/// All parts lie packed in their slots, until one is moved into a caller's tensor.
class Placement {
 public:
  explicit Placement(const BufferTable& buffers);

  const kernels::Rows& rows(BufferId buffer, std::size_t part) const { return rows_[at(buffer, part)]; }
  /// Whether the buffer's parts may lie elsewhere, and had better: attention's kernels alone touch them, and not too
  /// often for rows that lie apart.
  bool may_move(BufferId buffer) const { return may_move_[index(buffer)]; }
  void move(BufferId buffer, std::size_t part, const kernels::Rows& into) { rows_[at(buffer, part)] = into; }
  void move_back(BufferId buffer, std::size_t part) { rows_[at(buffer, part)] = slots_[at(buffer, part)]; }

 private:
  std::size_t at(BufferId buffer, std::size_t part) const { return first_[index(buffer)] + part; }

  std::vector<std::size_t> first_;  // by buffer: its first part
  std::vector<kernels::Rows> slots_, rows_;
  std::vector<bool> may_move_;  // by buffer
};

}  // namespace distattn::backends

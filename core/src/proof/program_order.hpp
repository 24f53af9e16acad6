#pragma once
/// The proof that one rank's steps cannot meet in a slot, and that its exchanges meet those of other ranks.

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "core/src/proof/program_check.hpp"
#include "core/src/schedule/hazards.hpp"

namespace distattn {

/// Takes the steps of a program one at a time, in their order. What it finds goes into `out`.
class OrderCheck {
 public:
  OrderCheck(Rank rank, const RankProgram& program, RankCheck& out);
  void next(const Step& step);

 private:
  struct Operand {
    std::int64_t operation = 0;
    BufferId buffer{-1};
    Access access{};
  };

  const BufferDecl& decl(BufferId b) const { return program_.buffers[index(b)]; }
  void find(FindingKind kind, const Step& step, const std::string& what);
  void check_slots(const Step& step);
  void check_operands(const Step& step, const Op& op);
  void check_exchange(const Step& step);
  void check_slots_of_exchange(const Step& step);
  void check_next_message(const Step& step, std::pair<Rank, Value>& last, std::pair<Rank, Value> next);

  Rank rank_;
  const RankProgram& program_;
  RankCheck& out_;
  std::int32_t position_ = 0;  // of the next step
  SlotHistory history_;
  LaneClocks clocks_;
  std::vector<std::int64_t> sent_in_, received_in_;  // by slot: the last exchange that did
  std::vector<Operand> operands_;                    // by slot: of the last operation that touched it
  std::int64_t exchanges_ = 0, operations_ = 0;
  std::tuple<int, Lane, int> last_group_{-1, Lane::compute, -1};
};

}  // namespace distattn

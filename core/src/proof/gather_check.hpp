#pragma once
/// The proof that what a step calls a gather is one, with its contributions where a collective puts them.

#include <cstdint>
#include <map>

#include "core/src/proof/program_check.hpp"

namespace distattn {

/// Takes the exchanges of a program one at a time. What it finds goes into `out`.
class GatherCheck {
 public:
  GatherCheck(const Outline& outline, Rank rank, const RankProgram& program, RankCheck& out)
      : outline_(outline), rank_(rank), program_(program), out_(out) {}

  void next(const Step& step);
  /// Which gather of the step carries a buffer's messages, alike on all of its members; 0: none.
  std::uint64_t of(BufferId buffer) const {
    const auto found = gather_of_.find(buffer);
    return found == gather_of_.end() ? 0 : found->second;
  }

 private:
  /// How often a buffer is sent and received in the step, and by whom.
  struct Messages {
    std::vector<Rank> to, from;
  };

  const BufferDecl& decl(BufferId b) const { return program_.buffers[index(b)]; }
  void find(FindingKind kind, const Step& step, BufferId buffer, const char* what);
  void check_members(const Step& step, const Gather& gather);
  void check_places(const Step& step, const Gather& gather);
  void check_messages(const Step& step, const Gather& gather);

  const Outline& outline_;
  const Rank rank_;
  const RankProgram& program_;
  RankCheck& out_;
  std::map<BufferId, std::uint64_t> gather_of_;  // in the step
  std::map<BufferId, Messages> messages_of_;     // in the step
};

}  // namespace distattn

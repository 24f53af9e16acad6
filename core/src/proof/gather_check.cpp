#include "core/src/proof/gather_check.hpp"

#include <algorithm>
#include <utility>

namespace distattn {

void GatherCheck::next(const Step& step) {
  gather_of_.clear();
  if (step.gathers.empty()) return;
  messages_of_.clear();
  for (const Op& op : step.ops) {
    if (const auto* send = std::get_if<Send>(&op)) messages_of_[send->source].to.push_back(send->to);
    if (const auto* receive = std::get_if<Recv>(&op)) messages_of_[receive->into].from.push_back(receive->from);
  }
  std::pair<std::vector<Rank>, std::vector<Value>> last;
  for (const Gather& gather : step.gathers) {
    check_members(step, gather);
    check_places(step, gather);
    check_messages(step, gather);
    std::pair<std::vector<Rank>, std::vector<Value>> here;
    // Every member fills slots of the same size.
    std::uint64_t name = mix(program_.slots[index(decl(gather.buffers.front()).slot)]);
    for (const BufferId buffer : gather.buffers) {
      here.first.push_back(owner_of(outline_, decl(buffer).value));
      here.second.push_back(decl(buffer).value);
      name = hash_of(MessageKey{.value = decl(buffer).value, .gather = name});
    }
    // All ranks that share gathers come to them in one order, whichever others they have.
    if (here <= last) find(FindingKind::deadlock, step, gather.buffers.front(), "is gathered out of order");
    last = std::move(here);
    for (const BufferId buffer : gather.buffers) {
      if (!gather_of_.insert({buffer, name}).second) find(FindingKind::malformed, step, buffer, "is gathered twice");
    }
  }
}

void GatherCheck::find(FindingKind kind, const Step& step, BufferId buffer, const char* what) {
  out_.findings.push_back(finding_at(kind, rank_, step.number, to_string(decl(buffer).value) + " " + what));
}

void GatherCheck::check_members(const Step& step, const Gather& gather) {
  int own = 0;
  Rank last = -1;
  for (const BufferId buffer : gather.buffers) {
    const Value& value = decl(buffer).value;
    const Rank owner = owner_of(outline_, value);
    if (!is_input(value.kind)) find(FindingKind::malformed, step, buffer, "is gathered and no input");
    if (owner <= last) find(FindingKind::malformed, step, buffer, "is gathered, but not in the order of owners");
    own += owner == rank_ ? 1 : 0;
    last = owner;
  }
  if (own != 1) find(FindingKind::malformed, step, gather.buffers.front(), "is gathered without the rank's own");
}

/// Slots follow each other in memory: those of one size and with consecutive numbers are at equal distances.
void GatherCheck::check_places(const Step& step, const Gather& gather) {
  const int first = decl(gather.buffers.front()).slot;
  const auto bytes = [&](int slot) { return program_.slots[index(slot)]; };
  for (std::size_t member = 0; member < gather.buffers.size(); ++member) {
    const int slot = decl(gather.buffers[member]).slot;
    if (slot != first + static_cast<int>(member) || bytes(slot) != bytes(first)) {
      find(FindingKind::misplaced, step, gather.buffers[member], "is gathered and lies elsewhere");
    }
  }
}

void GatherCheck::check_messages(const Step& step, const Gather& gather) {
  std::vector<Rank> others;
  for (const BufferId buffer : gather.buffers) {
    const Rank owner = owner_of(outline_, decl(buffer).value);
    if (owner != rank_) others.push_back(owner);
  }
  for (const BufferId buffer : gather.buffers) {
    const Rank owner = owner_of(outline_, decl(buffer).value);
    Messages& messages = messages_of_[buffer];
    std::sort(messages.to.begin(), messages.to.end());
    const bool is_whole = owner == rank_ ? messages.from.empty() && messages.to == others
                                         : messages.to.empty() && messages.from == std::vector<Rank>{owner};
    if (!is_whole) find(FindingKind::unmatched, step, buffer, "is gathered, but its messages are others");
  }
}

}  // namespace distattn

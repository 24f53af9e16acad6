#include "distattn/subgroup.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "distattn/error.hpp"

namespace distattn {
namespace {

std::vector<Rank> checked(std::vector<Rank> members, const Transport& whole) {
  std::vector<Rank> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const bool known = !sorted.empty() && sorted.front() >= 0 && sorted.back() < whole.size();
  const bool own = std::binary_search(sorted.begin(), sorted.end(), whole.rank());
  if (!distinct || !known || !own) {
    refuse(fmt::format(
        "a group of ranks [{}] (rank {} of {} makes it): list different ranks, the own among them, alike on "
        "all of them",
        fmt::join(members, ", "), whole.rank(), whole.size()));
  }
  return members;
}

}  // namespace

Subgroup::Subgroup(Transport& whole, std::vector<Rank> members)
    : ForwardingTransport(whole), members_(checked(std::move(members), whole)) {
  const auto own = std::find(members_.begin(), members_.end(), whole.rank());
  rank_ = static_cast<Rank>(own - members_.begin());
}

Event Subgroup::submit(const Step& step, BufferTable& buffers, std::span<const Event> after) {
  Step& renamed = renamed_[index(step.lane)];
  renamed = step;
  for (Op& op : renamed.ops) {
    if (auto* send = std::get_if<Send>(&op)) send->to = members_[index(send->to)];
    if (auto* receive = std::get_if<Recv>(&op)) receive->from = members_[index(receive->from)];
  }
  return over().submit(renamed, buffers, after);
}

}  // namespace distattn

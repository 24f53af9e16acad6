#include "core/src/lower/gathers.hpp"

#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "distattn/index.hpp"

namespace distattn {
namespace {

constexpr std::size_t fewest_members = 3;
constexpr std::size_t padding_share = 8;  // at most 1/8 of what the members contribute

/// Inputs with the same key and different owners may be one gather.
struct RowKey {
  std::int32_t post, due;
  bool far;
  std::vector<Rank> members;
  ValueKind kind;
  int group;
  friend auto operator<=>(const RowKey&, const RowKey&) = default;
};

class GatherSearch {
 public:
  GatherSearch(const Outline& outline, const ValueIndex& values) : outline_(outline), values_(values) {}

  /// `messages` are all of one input.
  void add(std::span<const Message> messages) {
    const Value value = values_.input(index(messages.front().value));
    const Rank owner = owner_of(outline_, value);
    std::map<std::tuple<bool, std::int32_t, std::int32_t>, std::vector<Rank>> groups;
    for (const Message& m : messages) {
      if (m.from == owner) groups[{m.far, m.post, m.due}].push_back(m.to);
    }
    for (auto& [group, members] : groups) {
      if (members.size() + 1 < fewest_members) continue;
      members.push_back(owner);
      std::sort(members.begin(), members.end());
      const auto [far, post, due] = group;
      rows_[{post, due, far, std::move(members), value.kind, value.group}][owner].push_back(messages.front().value);
    }
  }

  std::vector<RowGather> take() {
    std::vector<RowGather> gathers;
    for (const auto& [key, values_of] : rows_) {
      if (values_of.size() < key.members.size()) continue;  // somebody contributes nothing
      std::size_t count = values_of.begin()->second.size();
      for (const auto& [owner, values] : values_of) count = std::min(count, values.size());
      for (std::size_t k = 0; k < count; ++k) {
        RowGather gather{key.post, key.due, key.far, key.members, {}, 0};
        std::size_t bytes = 0;
        for (const auto& [owner, values] : values_of) {
          gather.values.push_back(values[k]);
          const std::size_t mine = bytes_of(values[k]);
          gather.slot_bytes = std::max(gather.slot_bytes, mine);
          bytes += mine;
        }
        const std::size_t padding = gather.slot_bytes * gather.values.size() - bytes;
        if (padding > bytes / padding_share || !place(gather.values)) continue;
        gathers.push_back(std::move(gather));
      }
    }
    return gathers;
  }

 private:
  /// A value lies in one place: one that also goes to another row, on other nodes perhaps, is gathered by the first.
  bool place(const std::vector<std::int32_t>& values) {
    const auto is_placed = [&](std::int32_t value) { return placed_.contains(value); };
    if (std::any_of(values.begin(), values.end(), is_placed)) return false;
    placed_.insert(values.begin(), values.end());
    return true;
  }
  std::size_t bytes_of(std::int32_t value) const {
    return buffer_bytes(outline_, values_.input(index(value)), outline_.sharding.problem.dtype);
  }

  const Outline& outline_;
  const ValueIndex& values_;
  std::map<RowKey, std::map<Rank, std::vector<std::int32_t>>> rows_;  // each owner's values, ascending
  std::set<std::int32_t> placed_;
};

}  // namespace

std::vector<RowGather> find_gathers(const Outline& outline, const ValueIndex& values,
                                    std::span<const Message> messages) {
  if (outline.mode != Mode::gathered) return {};
  GatherSearch search(outline, values);
  for (std::size_t begin = 0, end = 0; begin < messages.size() && !messages[begin].result; begin = end) {
    while (end < messages.size() && !messages[end].result && messages[end].value == messages[begin].value) ++end;
    search.add(messages.subspan(begin, end - begin));
  }
  return search.take();
}

}  // namespace distattn

#pragma once
/// Dense numbers for the values of a sharding, so that tables over values are arrays.

#include <cstddef>
#include <cstdint>

#include "distattn/index.hpp"
#include "distattn/schedule.hpp"

namespace distattn {

/// Query-side values first, then key-side ones; inputs and results of one segment share a number, because a rank that
/// reads a segment also produces a result for it or for nothing at all.
class ValueIndex {
 public:
  ValueIndex() = default;
  explicit ValueIndex(const Sharding& sharding)
      : groups_(sharding.groups.size()), queries_(sharding.queries.size()), keys_(sharding.keys.size()) {}

  std::size_t size() const { return groups_ * (queries_ + keys_); }
  std::size_t query(int group, SegmentId segment) const { return index(group) * queries_ + index(segment); }
  std::size_t key(int group, SegmentId segment) const { return first_key() + index(group) * keys_ + index(segment); }
  std::size_t of(const Value& value) const {
    return is_key_side(value.kind) ? key(value.group, value.segment) : query(value.group, value.segment);
  }
  /// Query-side numbers end and key-side ones begin here.
  std::size_t first_key() const { return groups_ * queries_; }
  bool on_key_side(std::size_t number) const { return number >= first_key(); }

  /// The input, or the result of `pass`, that has this number.
  Value input(std::size_t number) const {
    return at(number, on_key_side(number) ? ValueKind::key_value : ValueKind::query, -1);
  }
  Value result(std::size_t number, Pass pass, Rank contributor) const {
    const ValueKind kind = pass == Pass::forward ? ValueKind::output
                           : on_key_side(number) ? ValueKind::dkey_value
                                                 : ValueKind::dquery;
    return at(number, kind, contributor);
  }

 private:
  Value at(std::size_t number, ValueKind kind, Rank contributor) const {
    const std::size_t side = on_key_side(number) ? keys_ : queries_;
    const std::size_t rest = on_key_side(number) ? number - first_key() : number;
    return {kind, static_cast<int>(rest / side), static_cast<SegmentId>(rest % side), contributor};
  }

  std::size_t groups_ = 0, queries_ = 0, keys_ = 0;
};

}  // namespace distattn

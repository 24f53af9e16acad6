#pragma once
/// Memory for buffers whose lifetimes are known: slots, reused as soon as a buffer's last step has ended.

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "distattn/index.hpp"

namespace distattn {

class SlotAllocator {
 public:
  /// A slot that nothing else ever uses.
  int take_own(std::size_t bytes) {
    bytes_.push_back(bytes);
    return static_cast<int>(bytes_.size()) - 1;
  }

  /// A slot until give_back() that keeps its size then too: what lies behind it stays where it is.
  int take_fixed(std::size_t bytes) {
    fixed_.insert(static_cast<int>(bytes_.size()));
    return take_own(bytes);
  }

  /// A slot until give_back(): the smallest free one that fits, else the largest free one, grown, else a new one.
  int take(std::size_t bytes) {
    auto found = free_.lower_bound({bytes, 0});
    if (found == free_.end()) {
      do {
        if (found == free_.begin()) return take_own(bytes);
        --found;
      } while (fixed_.contains(found->second));
    }
    const int slot = found->second;
    free_.erase(found);
    if (bytes_[index(slot)] < bytes) bytes_[index(slot)] = bytes;
    return slot;
  }
  void give_back(int slot) { free_.insert({bytes_[index(slot)], slot}); }

  std::vector<std::size_t> bytes() && { return std::move(bytes_); }

 private:
  std::vector<std::size_t> bytes_;
  std::set<int> fixed_;
  std::multiset<std::pair<std::size_t, int>> free_;
};

}  // namespace distattn

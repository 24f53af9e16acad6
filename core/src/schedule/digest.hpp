#pragma once
/// A number for what a program says, so that ranks can tell whether theirs belong together.

#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "core/src/problem/splitmix.hpp"
#include "core/src/schedule/schedule_fields.hpp"

namespace distattn {

/// Depends on every field of what is added and on its order, names excepted: they compute nothing.
class Digest {
 public:
  std::uint64_t value() const { return value_; }

  template <class T>
  void add(const T& item) {
    if constexpr (std::is_floating_point_v<T>) {
      word(std::bit_cast<std::uint64_t>(static_cast<double>(item)));
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      word(static_cast<std::uint64_t>(item));
    } else if constexpr (std::is_same_v<T, Band>) {
      for (const std::int64_t bound : {item.q0, item.q1, item.k0, item.k1, item.lo, item.hi}) add(bound);
    } else if constexpr (std::is_same_v<T, Op>) {
      add(item.index());
      std::visit([this](const auto& op) { fields_of(op, *this); }, item);
    } else {
      fields_of(item, *this);
    }
  }
  template <class T>
  void add(const std::vector<T>& items) {
    add(items.size());
    for (const T& item : items) add(item);
  }

  /// Called by fields_of().
  template <class T>
  void operator()(const char*, const T& field, Range = Range::any) {
    add(field);
  }
  void operator()(const char*, const std::string&, Range = Range::any) {}
  template <class T>
  void newer(const char*, const T& field) {
    add(field);
  }
  template <class T>
  void list_if_any(const char*, const std::vector<T>& items) {
    add(items);
  }

 private:
  void word(std::uint64_t bits) { value_ = splitmix::mix(value_ ^ bits) + splitmix::golden; }

  std::uint64_t value_ = 0;
};

}  // namespace distattn

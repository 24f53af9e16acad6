#pragma once
/// Subscripts, and arrays with one element for each pass or element type.

#include <array>
#include <concepts>
#include <cstddef>

#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// A rank, a head group or any other number that is not negative, as a subscript or a size.
template <std::integral Number>
constexpr std::size_t index(Number number) {
  return static_cast<std::size_t>(number);
}

/// An array with an element for each of an enumeration's `count` values, which are its subscripts.
template <class T, class Enum, std::size_t count>
struct ArrayBy : std::array<T, count> {
  using std::array<T, count>::operator[];
  constexpr T& operator[](Enum value) { return (*this)[index(value)]; }
  constexpr const T& operator[](Enum value) const { return (*this)[index(value)]; }
};

template <class T>
using PerPass = ArrayBy<T, Pass, 2>;
template <class T>
using PerDType = ArrayBy<T, DType, 4>;

}  // namespace distattn
#pragma GCC visibility pop

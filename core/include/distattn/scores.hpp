#pragma once
/// What makes the product of a query and a key a score.

#include <concepts>
#include <type_traits>

#pragma GCC visibility push(default)
namespace distattn {

/// The score of a query q and a key k is scale · q·k, and its softmax weight is e^(score − LSE) (docs/mathematics.md).
/// This struct goes whole from a problem to every kernel.
struct Scores {
  double scale = 0;  ///< in a problem 0 stands for 1/√head_dim; kernels are given the number itself
  friend bool operator==(const Scores&, const Scores&) = default;
};

/// Calls visit(name, field) for each field; a field of 0 has its usual value. JSON, digests, descriptions and what
/// ranks compare are made from these, so a new field is listed here and nowhere else.
template <class S, class Visit>
requires std::same_as<std::remove_const_t<S>, Scores>
void fields_of(S& scores, Visit&& visit) { visit("scale", scores.scale); }

}  // namespace distattn
#pragma GCC visibility pop

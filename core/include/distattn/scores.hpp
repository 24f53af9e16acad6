#pragma once
/// What makes the product of a query and a key a score.

#include <concepts>
#include <type_traits>

#pragma GCC visibility push(default)
namespace distattn {

/// The score of a query q and a key k is scale · q·k, or with a cap c the bounded c·tanh(scale · q·k / c). Its softmax
/// weight is e^(score − LSE) (docs/mathematics.md).
/// This struct goes whole from a problem to every kernel.
struct Scores {
  double scale = 0;    ///< in a problem 0 stands for 1/√head_dim; kernels are given the number itself
  double softcap = 0;  ///< the bound c of scores, above 0; 0: none
  /// Whether the softmax of every row has one more term e^s without a value, s being a number of the head that calls
  /// are given (Bindings::sink_logits).
  bool sink_logits = false;
  /// Probability, below 1, that a weight is dropped once its row is normalised; others are divided by 1 − dropout.
  /// Which are dropped depends on numbers of a call and on the pair's place in the whole attention alone
  /// (Bindings::dropout_seed).
  double dropout = 0;
  bool max_logit = false;  ///< whether a forward pass also gives each head's largest score (Bindings::max_logit)
  friend bool operator==(const Scores&, const Scores&) = default;
};

/// Calls visit(name, field) for each field; a field of 0 has its usual value. JSON, digests, descriptions and what
/// ranks compare are made from these, so a new field is listed here and nowhere else.
template <class S, class Visit>
requires std::same_as<std::remove_const_t<S>, Scores>
void fields_of(S& scores, Visit&& visit) {
  visit("scale", scores.scale);
  visit("softcap", scores.softcap);
  visit("sink_logits", scores.sink_logits);
  visit("max_logit", scores.max_logit);
  visit("dropout", scores.dropout);
}

/// Whether the gradients of a row's scaled products sum up to 0, apart from rounding.
constexpr bool gradients_cancel(const Scores& scores) { return scores.softcap == 0 && !scores.sink_logits; }

}  // namespace distattn
#pragma GCC visibility pop

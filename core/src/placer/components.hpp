#pragma once
/// The parts of a mask that do not see each other: documents, or a question with its answers.

#include <cstdint>
#include <memory>
#include <vector>

#include "distattn/band.hpp"
#include "distattn/mask.hpp"
#include "distattn/problem.hpp"

namespace distattn {

/// Components are cut at multiples of a grain, which is finer in short ones.
constexpr std::int64_t coarsest_grain = 128;

/// A run of positions that no band connects with others. Keeps a reference to the mask.
class Component {
 public:
  /// `causal`: every position sees itself and those before it, and nothing else.
  Component(std::int64_t start, std::int64_t length, bool causal, const BandIndex& mask);

  std::int64_t start() const { return start_; }
  std::int64_t length() const { return length_; }
  bool causal() const { return causal_; }
  double pairs() const { return pairs_; }
  /// Visible pairs of queries [a, a + n) and keys [b, b + m), counted from the component's first position.
  double pairs(std::int64_t a, std::int64_t n, std::int64_t b, std::int64_t m) const;
  /// Where the queries end that see this share of the pairs.
  double cut_at(double share) const;

 private:
  std::int64_t start_, length_;
  bool causal_;
  const BandIndex* mask_;
  double pairs_ = 0;
  std::vector<std::int64_t> cuts_;    // if not causal: positions,
  std::vector<double> pairs_before_;  // and the pairs of the queries before them
};

/// All components in order; together they hold every position.
std::vector<Component> components_of(const Problem& problem, const BandIndex& mask);

}  // namespace distattn

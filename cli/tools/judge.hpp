#pragma once
/// Compares results with the exact answer by row, and by head and document, so that errors in small parts do not
/// disappear next to large ones.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cli/tools/groups.hpp"
#include "cli/tools/oracle.hpp"
#include "distattn/index.hpp"
#include "kernels/reference/oracle.hpp"

namespace distattn {

enum class Result : std::uint8_t { o, lse, dq, dk, dv, dsink_logits, max_logit };
inline constexpr std::array all_results = {Result::o,  Result::lse,          Result::dq,       Result::dk,
                                           Result::dv, Result::dsink_logits, Result::max_logit};
/// Those that have a row for each token.
inline constexpr std::array row_results = {Result::o, Result::lse, Result::dq, Result::dk, Result::dv};

constexpr const char* name_of(Result result) {
  constexpr std::array names = {"o", "lse", "dq", "dk", "dv", "dsink_logits", "max_logit"};
  return names[index(result)];
}
constexpr bool is_key_side(Result result) { return result == Result::dk || result == Result::dv; }
/// Whether errors are absolute, and judged as a share of the result's magnitude where that is above 1.
constexpr bool is_logarithm(Result result) { return result == Result::lse || result == Result::max_logit; }
constexpr Pass pass_of(Result result) {
  return result == Result::o || is_logarithm(result) ? Pass::forward : Pass::backward;
}

using Squares = kernels::reference::Square;

/// The part of a result whose error is largest relative to its tolerance.
struct WorstPart {
  std::int64_t batch = 0, head = 0;  ///< for dk and dv, the key head
  std::int64_t group = -1;           ///< index into MaskGroups::groups; -1: tokens that see nothing
  std::int64_t token = -1;           ///< one row of the group; -1: the whole group
  /// Error of the part, relative in L2 (lse: absolute), and its tolerance.
  double error = 0, tolerance = 0;
  /// error / tolerance: wrong above 1; infinite if a NaN or an infinity differs from the exact result.
  double excess = 0;
};

/// The comparison of one result, or of a part of it.
struct Comparison {
  Squares squares = 0;          ///< sum of squared errors
  Squares exact_squares = 0;    ///< sum of squares of the exact result where it is finite
  Squares term_squares = 0;     ///< sum of squares of the terms that add up to it
  Squares allowed_squares = 0;  ///< sum of squares of the largest errors that its rows may have
  double largest_error = 0, largest_exact = 0, largest_allowed = 0;  ///< of single elements; largest_allowed of rows
  std::int64_t wrong = 0;  ///< elements of wrong rows whose error exceeds the row's average allowance
  WorstPart worst;

  /// Relative L2 error; for lse the largest absolute error. A result of which more than half cancels is compared with
  /// half of its terms instead.
  double error(Result result) const;
  /// The largest error() for which every part is right; for lse as a share of max(1, |lse|).
  double tolerance(Result result) const;
  void add(const Comparison& other);
};

/// What a result that is a number for each head should be, and how far off each may be.
struct ExpectedHeads {
  std::vector<double> exact, allowed, terms;
  explicit ExpectedHeads(std::size_t heads) : exact(heads), allowed(heads), terms(heads) {}
};
Comparison compare_heads(Result result, std::span<const double> got, const ExpectedHeads& expected);

/// Judges the results of one problem that have rows. Takes computed rows in any order, and judges those that it was
/// given.
class Judge {
 public:
  /// Keeps references to its arguments. `groups` must be groups_of(problem).
  Judge(const Problem& problem, const MaskGroups& groups, const ExpectedResult& expected);

  /// Adds a dense row of elements of `dtype`. `token` counts from the tensor's first. Give each row once.
  void add(Result result, std::int64_t batch, std::int64_t token, std::int64_t head, const std::byte* row, DType dtype);

  /// Sums over the rows of one head and group, to be combined when several processes have rows.
  struct Part {
    std::int64_t place = 0;  ///< index of the part
    Squares squares = 0;
    double largest_error = 0;
    double worst_row = 0, worst_error = 0;  ///< error / tolerance of the worst row, and its error
    std::int64_t worst_token = -1, wrong = 0;
  };
  std::vector<Part> parts() const;  ///< those that were given rows
  void add(std::span<const Part> parts);
  void clear();  ///< forgets all rows

  Comparison comparison(Result result) const;

 private:
  struct Bounds {
    Squares exact_squares = 0, term_squares = 0, allowed_squares = 0;
    double largest_allowed = 0, largest_exact = 0;
  };
  struct Row {
    std::span<const double> exact;
    double allowed, terms;
  };
  const RowNorms& norms(Result result) const;
  const std::vector<double>& exact(Result result) const;
  std::int64_t heads(Result result) const { return is_key_side(result) ? problem_.kv_heads : problem_.heads; }
  std::int64_t tokens(Result result) const { return is_key_side(result) ? problem_.seq_kv : problem_.seq_q; }
  std::int64_t dim(Result result) const;
  Row row_of(Result result, std::int64_t batch, std::int64_t head, std::int64_t token) const;
  std::int64_t part_of(Result result, std::int64_t batch, std::int64_t head, std::int64_t token) const;
  void add_bounds(Result result);
  WorstPart worst_of(Result result, std::int64_t place) const;

  const Problem& problem_;
  const MaskGroups& groups_;
  const ExpectedResult& expected_;
  std::array<std::int64_t, row_results.size() + 1> first_part_{};  // of each result, [batch][head][1 + group]
  std::vector<Part> parts_;
  std::vector<Bounds> bounds_;
};

}  // namespace distattn

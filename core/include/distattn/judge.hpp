#pragma once
/// Results against the exact answer: by row, and by head and document, so that nothing hides behind what is larger.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "distattn/groups.hpp"
#include "distattn/oracle.hpp"

#pragma GCC visibility push(default)
namespace distattn {

enum class Result : std::uint8_t { o, lse, dq, dk, dv };
inline constexpr std::array all_results = {Result::o, Result::lse, Result::dq, Result::dk, Result::dv};

constexpr const char* name_of(Result result) {
  constexpr std::array names = {"o", "lse", "dq", "dk", "dv"};
  return names[static_cast<std::size_t>(result)];
}
constexpr bool is_key_side(Result result) { return result == Result::dk || result == Result::dv; }
constexpr Pass pass_of(Result result) {
  return result == Result::o || result == Result::lse ? Pass::forward : Pass::backward;
}

/// The part of a result that is farthest from what it may be.
struct WorstPart {
  std::int64_t batch = 0, head = 0;  ///< of the keys for dk and dv
  std::int64_t group = -1;           ///< of MaskGroups; -1: tokens that see nothing
  std::int64_t token = -1;           ///< one row of the group; -1: all of it
  /// Of the part: relative L2 (lse: absolute), and the largest that it may be.
  double error = 0, tolerance = 0;
  double excess =
      0;  ///< error / tolerance: above 1 it is wrong; infinite where a NaN or an infinity is not as it should
};

/// How one result, or a part of it, compares.
struct Comparison {
  double squares = 0;                                                ///< of errors
  double exact_squares = 0;                                          ///< of what it should be, where that is finite
  double term_squares = 0;                                           ///< of what sums up to it
  double allowed_squares = 0;                                        ///< of the largest errors of its rows
  double largest_error = 0, largest_exact = 0, largest_allowed = 0;  ///< of single elements, allowed of rows
  std::int64_t wrong = 0;  ///< elements of wrong rows that are farther off than their row allows on average
  WorstPart worst;

  /// Relative L2 error; the largest absolute one of lse. What cancels by more than half counts as half of its terms.
  double error(Result result) const;
  /// What error() may be for all parts to be right: lse as a share of max(1, its magnitude).
  double tolerance(Result result) const;
  void add(const Comparison& other);
};

/// Of one problem: takes computed rows in any order, and judges what it was given.
class Judge {
 public:
  /// All are kept as references. `groups` are those of `problem`.
  Judge(const Problem& problem, const MaskGroups& groups, const ExpectedResult& expected);

  /// A row of `dtype`, dense. `token` counts from the tensor's first. Each row is given once.
  void add(Result result, std::int64_t batch, std::int64_t token, std::int64_t head, const std::byte* row, DType dtype);

  /// What the rows of one head and group came to: to be put together where several processes have rows.
  struct Part {
    std::int64_t place = 0;  ///< which part
    double squares = 0, largest_error = 0;
    double worst_row = 0, worst_error = 0;  ///< how often the error of a row is what it may be, and that error
    std::int64_t worst_token = -1, wrong = 0;
  };
  std::vector<Part> parts() const;  ///< of those that were given rows
  void add(std::span<const Part> parts);
  void clear();  ///< forgets all rows

  Comparison comparison(Result result) const;

 private:
  struct Bounds {
    double exact_squares = 0, term_squares = 0, allowed_squares = 0, largest_allowed = 0, largest_exact = 0;
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
  std::array<std::int64_t, all_results.size() + 1> first_part_{};  // of each result, [batch][head][1 + group]
  std::vector<Part> parts_;
  std::vector<Bounds> bounds_;
};

}  // namespace distattn
#pragma GCC visibility pop

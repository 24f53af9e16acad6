#include "cli/tools/judge.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The errors of a group's rows are bounded together; one row alone may be this much farther off.
constexpr double row_alone = 4;

using kernels::reference::root;
using kernels::reference::square;

double element(const std::byte* row, DType dtype, std::int64_t x) {
  return dtype == DType::fp64 ? reinterpret_cast<const double*>(row)[x]
                              : static_cast<double>(reinterpret_cast<const float*>(row)[x]);
}

/// |value − exact|. NaN is right where NaN is expected, an infinity where that one is, or a number that the type does
/// not hold; nothing else is.
double difference(double value, double exact, double allowed, DType dtype) {
  if (value == exact || (std::isnan(value) && std::isnan(exact))) return 0;
  if (std::isfinite(value)) return std::isfinite(exact) ? std::abs(value - exact) : infinity;
  constexpr double largest = std::numeric_limits<float>::max();
  const bool past_the_type = dtype != DType::fp64 && std::isfinite(exact) && std::abs(exact) + allowed > largest;
  return past_the_type && value == std::copysign(infinity, exact) ? 0 : infinity;
}

/// 0 / 0 is right, and anything else / 0 is not.
double times(double error, double allowed) { return error == 0 ? 0 : allowed > 0 ? error / allowed : infinity; }

/// Of those that are finite.
Squares squares_of(std::span<const double> values) {
  Squares squares = 0;
  for (const double value : values) squares += std::isfinite(value) ? square(value) : 0;
  return squares;
}

double size_of(Squares exact_squares, Squares term_squares) {
  const double size = std::max(root(exact_squares), root(term_squares) / 2);
  return size > 0 ? size : 1;
}

}  // namespace

double Comparison::error(Result result) const {
  return is_logarithm(result) ? largest_error : root(squares) / size_of(exact_squares, term_squares);
}

double Comparison::tolerance(Result result) const {
  if (is_logarithm(result)) return largest_allowed / std::max(1.0, largest_exact);
  return root(allowed_squares) / size_of(exact_squares, term_squares);
}

void Comparison::add(const Comparison& other) {
  squares += other.squares;
  exact_squares += other.exact_squares;
  term_squares += other.term_squares;
  allowed_squares += other.allowed_squares;
  largest_error = std::max(largest_error, other.largest_error);
  largest_exact = std::max(largest_exact, other.largest_exact);
  largest_allowed = std::max(largest_allowed, other.largest_allowed);
  wrong += other.wrong;
  if (other.worst.excess > worst.excess) worst = other.worst;
}

Judge::Judge(const Problem& problem, const MaskGroups& groups, const ExpectedResult& expected)
    : problem_(problem), groups_(groups), expected_(expected) {
  const std::int64_t parts = 1 + std::ssize(groups.groups);
  for (const Result result : row_results) {
    const auto r = index(result);
    first_part_[r + 1] = first_part_[r] + (exact(result).empty() ? 0 : problem.batch * heads(result) * parts);
  }
  bounds_.resize(index(first_part_.back()));
  clear();
  for (const Result result : row_results) {
    if (!exact(result).empty()) add_bounds(result);
  }
}

const RowNorms& Judge::norms(Result result) const {
  const std::array all = {&expected_.o, &expected_.lse, &expected_.dq, &expected_.dk, &expected_.dv};
  return *all[index(result)];
}

const std::vector<double>& Judge::exact(Result result) const {
  const ExactResult& of = expected_.exact;
  const std::array all = {&of.o, &of.lse, &of.dq, &of.dk, &of.dv};
  return *all[index(result)];
}

std::int64_t Judge::dim(Result result) const {
  if (result == Result::lse) return 1;
  return result == Result::o || result == Result::dv ? problem_.value_dim : problem_.head_dim;
}

/// Rows of lse lie head by head, those of the others token by token.
Judge::Row Judge::row_of(Result result, std::int64_t batch, std::int64_t head, std::int64_t token) const {
  const std::int64_t row = (batch * tokens(result) + token) * heads(result) + head, width = dim(result);
  const std::int64_t first =
      result == Result::lse ? (batch * problem_.heads + head) * problem_.seq_q + token : row * width;
  const auto at = index(row);
  return {std::span(exact(result)).subspan(index(first), index(width)), norms(result).allowed[at],
          norms(result).terms[at]};
}

std::int64_t Judge::part_of(Result result, std::int64_t batch, std::int64_t head, std::int64_t token) const {
  const auto& of_token = is_key_side(result) ? groups_.of_key : groups_.of_query;
  const std::int64_t parts = 1 + std::ssize(groups_.groups);
  return first_part_[index(result)] + (batch * heads(result) + head) * parts + 1 + of_token[index(token)];
}

void Judge::add_bounds(Result result) {
  for (std::int64_t batch = 0; batch < problem_.batch; ++batch) {
    for (std::int64_t token = 0; token < tokens(result); ++token) {
      for (std::int64_t head = 0; head < heads(result); ++head) {
        const Row row = row_of(result, batch, head, token);
        Bounds& bounds = bounds_[index(part_of(result, batch, head, token))];
        bounds.exact_squares += squares_of(row.exact);
        bounds.term_squares += square(row.terms);
        bounds.allowed_squares += square(row.allowed);
        bounds.largest_allowed = std::max(bounds.largest_allowed, row.allowed);
        for (const double value : row.exact) {
          if (std::isfinite(value)) bounds.largest_exact = std::max(bounds.largest_exact, std::abs(value));
        }
      }
    }
  }
}

void Judge::add(Result result, std::int64_t batch, std::int64_t token, std::int64_t head, const std::byte* row,
                DType dtype) {
  const Row should = row_of(result, batch, head, token);
  Part& part = parts_[index(part_of(result, batch, head, token))];
  const auto off = [&](std::size_t x) {
    return difference(element(row, dtype, static_cast<std::int64_t>(x)), should.exact[x], should.allowed, dtype);
  };
  Squares squares = 0;
  for (std::size_t x = 0; x < should.exact.size(); ++x) {
    squares += square(off(x));
    part.largest_error = std::max(part.largest_error, off(x));
  }
  part.squares += squares;
  const double most = should.allowed * (result == Result::lse ? 1 : row_alone);
  const double excess = times(root(squares), most);
  if (part.worst_token < 0 || excess > part.worst_row) {
    part.worst_row = excess;
    part.worst_error = root(squares);
    part.worst_token = token;
  }
  if (excess <= 1) return;
  const double average = most / std::sqrt(static_cast<double>(should.exact.size()));
  for (std::size_t x = 0; x < should.exact.size(); ++x) part.wrong += off(x) > average ? 1 : 0;
}

void Judge::clear() {
  parts_.assign(bounds_.size(), {});
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].place = static_cast<std::int64_t>(i);
}

std::vector<Judge::Part> Judge::parts() const {
  std::vector<Part> given;
  std::copy_if(parts_.begin(), parts_.end(), std::back_inserter(given),
               [](const Part& part) { return part.worst_token >= 0; });
  return given;
}

void Judge::add(std::span<const Part> parts) {
  for (const Part& other : parts) {
    DISTATTN_EXPECT(0 <= other.place && other.place < std::ssize(parts_));
    Part& part = parts_[index(other.place)];
    part.squares += other.squares;
    part.largest_error = std::max(part.largest_error, other.largest_error);
    part.wrong += other.wrong;
    if (part.worst_token >= 0 && other.worst_row <= part.worst_row) continue;
    part.worst_row = other.worst_row;
    part.worst_error = other.worst_error;
    part.worst_token = other.worst_token;
  }
}

/// The row that is farthest off, where the part is not wrong without it, and else the part.
WorstPart Judge::worst_of(Result result, std::int64_t place) const {
  const auto i = index(first_part_[index(result)] + place);
  const Part& part = parts_[i];
  const Bounds& bounds = bounds_[i];
  const bool is_lse = result == Result::lse;
  const std::int64_t parts = 1 + std::ssize(groups_.groups), row_heads = heads(result);
  WorstPart found{.batch = place / parts / row_heads, .head = place / parts % row_heads, .group = place % parts - 1};
  const double together = is_lse ? 0 : times(root(part.squares), root(bounds.allowed_squares));
  found.excess = std::max(together, part.worst_row);
  const bool is_most_of_it = 3 * square(part.worst_error) >= part.squares;
  const bool alone = is_lse || (part.worst_row > together && (together <= 1 || is_most_of_it));
  if (alone && part.worst_token >= 0) {
    const Row row = row_of(result, found.batch, found.head, part.worst_token);
    const double size = is_lse ? 1 : size_of(squares_of(row.exact), square(row.terms));
    found.token = part.worst_token;
    found.error = part.worst_error / size;
    found.tolerance = row.allowed * (is_lse ? 1 : row_alone) / size;
  } else {
    const double size = size_of(bounds.exact_squares, bounds.term_squares);
    found.error = root(part.squares) / size;
    found.tolerance = root(bounds.allowed_squares) / size;
  }
  return found;
}

Comparison Judge::comparison(Result result) const {
  Comparison sum;
  const auto r = index(result);
  for (std::int64_t i = first_part_[r]; i < first_part_[r + 1]; ++i) {
    const Part& part = parts_[index(i)];
    const Bounds& bounds = bounds_[index(i)];
    sum.add({.squares = part.squares,
             .exact_squares = bounds.exact_squares,
             .term_squares = bounds.term_squares,
             .allowed_squares = bounds.allowed_squares,
             .largest_error = part.largest_error,
             .largest_exact = bounds.largest_exact,
             .largest_allowed = bounds.largest_allowed,
             .wrong = part.wrong,
             .worst = worst_of(result, i - first_part_[r])});
  }
  return sum;
}

Comparison compare_heads(Result result, std::span<const double> got, const ExpectedHeads& expected) {
  Comparison sum;
  const double most = is_logarithm(result) ? 1 : row_alone;
  for (std::size_t head = 0; head < expected.exact.size(); ++head) {
    const double exact = expected.exact[head], allowed = expected.allowed[head], terms = expected.terms[head];
    const double error = difference(got[head], exact, allowed, DType::fp32);
    const double size = is_logarithm(result) ? 1 : size_of(squares_of({&exact, 1}), square(terms));
    sum.add({.squares = square(error),
             .exact_squares = squares_of({&exact, 1}),
             .term_squares = square(terms),
             .allowed_squares = square(allowed),
             .largest_error = error,
             .largest_exact = std::isfinite(exact) ? std::abs(exact) : 0,
             .largest_allowed = allowed,
             .wrong = error > most * allowed ? 1 : 0,
             .worst = {.head = static_cast<std::int64_t>(head),
                       .error = error / size,
                       .tolerance = most * allowed / size,
                       .excess = times(error, most * allowed)}});
  }
  return sum;
}

}  // namespace distattn

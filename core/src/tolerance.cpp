#include "distattn/tolerance.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace distattn {
namespace {

/// Half of what a result of zeros has.
constexpr double most_tolerated = 0.5;

/// Half the distance between 1 and the next number.
double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return 0x1p-53;
    case DType::fp32:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-8;
    case DType::fp16:
      return 0x1p-11;
  }
  return 1;
}

/// Standard deviation of the scores: 1 at the usual scale, of inputs of unit variance.
double score_deviation(const Problem& problem, double input_scale) {
  const double usual = std::sqrt(static_cast<double>(problem.head_dim));
  return input_scale * (problem.scale == 0 ? 1 : std::abs(problem.scale) * usual);
}

}  // namespace

double tolerance(const Problem& problem, std::int64_t merges, double input_scale) {
  const auto length = static_cast<std::uint64_t>(std::max(problem.seq_q, problem.seq_kv));
  const double of_scores = 16.0 * std::max(0.0, score_deviation(problem, input_scale) - 1);
  const double roundings =
      32.0 + std::bit_width(length) + 2.0 * std::bit_width(static_cast<std::uint64_t>(merges)) + of_scores;
  double error = roundings * 1.5 * unit_roundoff(problem.accumulator());
  if (problem.dtype != problem.accumulator()) error += 2.0 * unit_roundoff(problem.dtype);
  if (problem.wire_type() != problem.accumulator() && merges > 0) error += 2.0 * unit_roundoff(problem.wire_type());
  return std::min(error, most_tolerated);
}

}  // namespace distattn

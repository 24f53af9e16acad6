#include "cli/tools/tolerance.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace distattn {
namespace {

/// Half of what a result of zeros has.
constexpr double most_tolerated = 0.5;

struct Precision {
  double unit;      ///< half the distance between 1 and the next number
  double smallest;  ///< number above 0; it is the distance between denormal ones
};

Precision precision_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return {0x1p-53, 0x1p-1074};
    case DType::fp32:
      return {0x1p-24, 0x1p-149};
    case DType::bf16:
      return {0x1p-8, 0x1p-133};
    case DType::fp16:
      return {0x1p-11, 0x1p-24};
  }
  return {1, 0};
}

/// Standard deviation of the scores: 1 at the usual scale, of inputs of unit variance.
double score_deviation(const Problem& problem, double input_scale) {
  const double usual = std::sqrt(static_cast<double>(problem.head_dim));
  return input_scale * (problem.scores.scale == 0 ? 1 : std::abs(problem.scores.scale) * usual);
}

}  // namespace

Rounding rounding_of(const Problem& problem, std::int64_t merges, bool sent) {
  const DType accumulator = problem.accumulator();
  const double unit = precision_of(accumulator).unit;
  const bool narrow = problem.dtype != accumulator, narrow_wire = sent && problem.wire_type() != accumulator;
  const double narrow_unit = narrow ? precision_of(problem.dtype).unit : 0;
  const double wire_unit = narrow_wire ? precision_of(problem.wire_type()).unit : 0;
  const auto length = static_cast<std::uint64_t>(std::max(problem.seq_q, problem.seq_kv));
  const auto doublings = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(merges)));
  Rounding rounding;
  rounding.exponential = 1.5 * unit * (32.0 + static_cast<double>(std::bit_width(length)) + 2 * doublings);
  rounding.weight = rounding.exponential + 2 * narrow_unit + 2 * wire_unit;
  rounding.score = unit * (2.5 + doublings / 2);
  rounding.sum = 4 * unit + wire_unit / 2;
  rounding.dot = 16 * unit + 2 * narrow_unit;
  rounding.chain = unit / 4;
  rounding.delta = rounding.dot + 2 * wire_unit;
  rounding.underflow = problem.dtype == DType::fp16 ? precision_of(problem.dtype).smallest
                       : accumulator == DType::fp64 ? 0x1p-1022
                                                    : 0x1p-99;
  rounding.least = precision_of(accumulator).smallest;
  rounding.element = precision_of(problem.dtype).smallest;
  rounding.sent = narrow_wire ? static_cast<double>(merges) * precision_of(problem.wire_type()).smallest : 0;
  return rounding;
}

double tolerance(const Problem& problem, std::int64_t merges, double input_scale) {
  const double steeper = std::max(0.0, score_deviation(problem, input_scale) - 1);
  const double error =
      rounding_of(problem, merges, merges > 0).weight + 24 * precision_of(problem.accumulator()).unit * steeper;
  return std::min(error, most_tolerated);
}

}  // namespace distattn

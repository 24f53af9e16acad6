#include "check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "distattn/host_resources.hpp"
#include "distattn/tolerance.hpp"
#include "expected.hpp"
#include "gather.hpp"

namespace distattn::cli {
namespace {

/// |a − b|, where equal infinities and two NaNs do not differ.
double difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double distance = std::abs(a - b);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

/// Sums of squares on the way to a relative L2 error, the largest difference, and how many are too large.
struct Distance {
  double tolerance = 0, scale = 1;
  double squares = 0, reference_squares = 0, largest = 0, largest_reference = 0;
  std::int64_t wrong = 0;

  void measure_by(const std::vector<double>& exact, double cancelling_squares = 0) {
    const auto count = static_cast<double>(std::max<std::size_t>(exact.size(), 1));
    scale = std::max({1.0, root_mean_square(exact), std::sqrt(cancelling_squares / count)});
  }
  void add(double value, double reference) {
    const double d = difference(value, reference);
    squares += d * d;
    double magnitude = scale;
    if (std::isfinite(reference)) {
      reference_squares += reference * reference;
      largest_reference = std::max(largest_reference, std::abs(reference));
      magnitude = std::max(magnitude, std::abs(reference));
    }
    largest = std::max(largest, d);
    wrong += d > tolerance * magnitude ? 1 : 0;
  }
  /// That of other rows.
  void add(const Distance& other) {
    squares += other.squares;
    reference_squares += other.reference_squares;
    largest = std::max(largest, other.largest);
    largest_reference = std::max(largest_reference, other.largest_reference);
    wrong += other.wrong;
  }
  double norm() const { return std::sqrt(reference_squares); }
  /// Where reference and what cancels in it are zero everywhere, the error itself.
  double relative(double cancelling = 0) const {
    const double size = std::max(norm(), cancelling / 2);
    return std::sqrt(squares) / (size > 0 ? size : 1.0);
  }
};

double element(const std::byte* row, DType dtype, std::int64_t x) {
  return dtype == DType::fp64 ? reinterpret_cast<const double*>(row)[x]
                              : static_cast<double>(reinterpret_cast<const float*>(row)[x]);
}

/// A rank's rows of one head group against the oracle's [1, sequence, heads, dim].
struct HeadRange {
  std::int64_t b, first, count;
};

void compare(const ConstTensorView& local, const std::vector<std::int64_t>& positions, std::int64_t first_position,
             const HeadRange& heads, const std::vector<double>& exact, Distance& distance) {
  const std::int64_t dim = local.head_dim();
  for (std::int64_t i = 0; i < std::ssize(positions); ++i) {
    const std::int64_t s = positions[static_cast<std::size_t>(i)] - first_position;
    for (std::int64_t h = 0; h < heads.count; ++h) {
      const std::byte* const row = local.row(heads.b, i, heads.first + h);
      const double* const expected = exact.data() + (s * heads.count + h) * dim;
      for (std::int64_t x = 0; x < dim; ++x) distance.add(element(row, local.dtype, x), expected[x]);
    }
  }
}

/// The oracle's lse is [heads, sequence].
void compare_lse(const ConstTensorView& local, const std::vector<std::int64_t>& positions, const Problem& problem,
                 const HeadRange& heads, const std::vector<double>& exact, Distance& distance) {
  for (std::int64_t i = 0; i < std::ssize(positions); ++i) {
    const std::int64_t s = positions[static_cast<std::size_t>(i)] - problem.first_query();
    for (std::int64_t h = 0; h < heads.count; ++h) {
      const std::byte* const row = local.row(heads.b, i, heads.first + h);
      distance.add(element(row, local.dtype, 0), exact[static_cast<std::size_t>(h * problem.seq_q + s)]);
    }
  }
}

/// Distances of every result so far.
struct Distances {
  Distances() = default;
  explicit Distances(double tolerance) {
    for (Distance* const each : {&o, &lse, &dq, &dk, &dv}) each->tolerance = tolerance;
  }
  /// What is added next is beside these.
  void measure_by(const Expected& expected) {
    o.measure_by(expected.exact.o);
    lse.measure_by(expected.exact.lse);
    dq.measure_by(expected.exact.dq, expected.cancelling.dq);
    dk.measure_by(expected.exact.dk, expected.cancelling.dk);
    dv.measure_by(expected.exact.dv);
  }

  Distance o, lse, dq, dk, dv;

  void add(const Distances& other) {
    for (Distance Distances::*each : {&Distances::o, &Distances::lse, &Distances::dq, &Distances::dk, &Distances::dv}) {
      (this->*each).add(other.*each);
    }
  }
};

}  // namespace

double Errors::largest(Pass pass) const {
  const std::array errors =
      pass == Pass::forward ? std::array{o, lse / std::max(1.0, largest_lse), 0.0} : std::array{dq, dk, dv};
  double most = 0;
  for (const double error : errors) {
    most = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(most, error);
  }
  return most;
}

Errors check_results(World& world, const Sharding& sharding, const Inputs& inputs, const std::vector<RankTensors>& here,
                     Passes passes, int steps) {
  const Problem& problem = sharding.problem;
  const int threads = world.in_process() ? usable_cores() : world.cores();
  const std::int64_t group = problem.heads_per_kv();
  const double most = tolerance(problem, steps, input_scale(inputs));
  Distances mine(most);
  Cancelling cancelling;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    for (std::int64_t kv_head = 0; kv_head < problem.kv_heads; ++kv_head) {
      const Expected expected = expected_of(problem, inputs, b, kv_head, passes, threads);
      const ExactResult& exact = expected.exact;
      mine.measure_by(expected);
      cancelling.add(expected.cancelling);
      const HeadRange query_heads{b, kv_head * group, group}, key_heads{b, kv_head, 1};
      for (const RankTensors& local : here) {
        const auto queries = positions(sharding.queries, local.rank()), keys = positions(sharding.keys, local.rank());
        compare(local.o(), queries, problem.first_query(), query_heads, exact.o, mine.o);
        compare_lse(local.lse(), queries, problem, query_heads, exact.lse, mine.lse);
        if (passes == Passes::forward) continue;
        compare(local.dq(), queries, problem.first_query(), query_heads, exact.dq, mine.dq);
        compare(local.dk(), keys, 0, key_heads, exact.dk, mine.dk);
        compare(local.dv(), keys, 0, key_heads, exact.dv, mine.dv);
      }
    }
  }
  Distances distances;
  for (const Distances& each : gather<Distances>(world, std::span(&mine, 1))) distances.add(each);
  return {.o = distances.o.relative(),
          .lse = distances.lse.largest,
          .dq = distances.dq.relative(std::sqrt(cancelling.dq)),
          .dk = distances.dk.relative(std::sqrt(cancelling.dk)),
          .dv = distances.dv.relative(),
          .tolerance = most,
          .largest_lse = distances.lse.largest_reference,
          .wrong_elements = {distances.o.wrong + distances.lse.wrong,
                             distances.dq.wrong + distances.dk.wrong + distances.dv.wrong},
          .backward = passes == Passes::both};
}

Json json_of(const Errors& errors) {
  const auto gradient = [&](double error) { return errors.backward ? number_or_null(error) : Json(nullptr); };
  return {{"o", number_or_null(errors.o)}, {"lse", number_or_null(errors.lse)}, {"dq", gradient(errors.dq)},
          {"dk", gradient(errors.dk)},     {"dv", gradient(errors.dv)},         {"tolerance", errors.tolerance}};
}

}  // namespace distattn::cli

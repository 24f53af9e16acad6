#include "conformance/kernels/tile_case.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "distattn/tolerance.hpp"
#include "kernels/element.hpp"

namespace distattn::test {

using namespace kernels;

namespace {

/// An array in some element type, 64-byte aligned, as kernels take it.
class TypedArray {
 public:
  TypedArray(DType dtype, const std::vector<double>& values) : dtype_(dtype), count_(values.size()) {
    bytes_.resize(count_ * size_of(dtype) + 64);
    std::size_t room = bytes_.size();
    data_ = bytes_.data();
    std::align(64, count_ * size_of(dtype), data_, room);
    with_element(dtype, [&]<class Element>(Element) {
      for (std::size_t i = 0; i < count_; ++i) static_cast<Element*>(data_)[i] = rounded_to<Element>(values[i]);
    });
  }
  TypedArray(const TypedArray&) = delete;
  TypedArray(TypedArray&& other) noexcept = default;

  void* data() { return data_; }
  std::vector<double> values() const {
    std::vector<double> all(count_);
    with_element(dtype_, [&]<class Element>(Element) {
      for (std::size_t i = 0; i < count_; ++i) all[i] = static_cast<double>(static_cast<const Element*>(data_)[i]);
    });
    return all;
  }

 private:
  DType dtype_;
  std::size_t count_;
  std::vector<std::byte> bytes_;
  void* data_ = nullptr;
};

std::size_t query_values(const TileCase& tile, std::int64_t dim) {
  return static_cast<std::size_t>(tile.shape.batch * tile.shape.heads.q_count * tile.queries.count * dim);
}
std::size_t key_values(const TileCase& tile, const CaseSide& side, std::int64_t dim) {
  return static_cast<std::size_t>(tile.shape.batch * tile.shape.heads.kv_count * side.keys.count * dim);
}

CaseResults run_in(DType dtype, const TileCase& tile, const CaseInputs& inputs, const HostKernels& kernels, Team& team,
                   const CaseResults* global) {
  const StopFlag never{false};
  const DType sum = accumulator_of(dtype);
  TileShape shape = tile.shape;
  shape.dtype = dtype;
  const std::vector<double> junk_o(query_values(tile, shape.value_dim), 7.0), junk_lse(query_values(tile, 1), 7.0);
  TypedArray q(dtype, inputs.q), d_o(dtype, inputs.d_o);
  TypedArray o(sum, tile.carry ? inputs.o : junk_o), lse(sum, tile.carry ? inputs.lse : junk_lse);
  TypedArray dq(sum, inputs.dq);
  std::vector<TypedArray> k, v, dk, dv;
  std::vector<KeySide> sides;
  for (std::size_t i = 0; i < tile.sides.size(); ++i) {
    k.emplace_back(dtype, inputs.k[i]);
    v.emplace_back(dtype, inputs.v[i]);
    dk.emplace_back(sum, inputs.dk[i]);
    dv.emplace_back(sum, inputs.dv[i]);
    sides.push_back(
        {k[i].data(), v[i].data(), tile.sides[i].keys, tile.sides[i].bands, dk[i].data(), dv[i].data(), tile.carry});
  }
  const AttendArgs forward{shape, q.data(), tile.queries, sides, o.data(), lse.data(), tile.carry};
  kernels.attend({&forward, 1}, team, never);
  CaseResults results;
  results.o = o.values();
  results.lse = lse.values();

  TypedArray global_o(sum, global != nullptr ? global->o : results.o);
  TypedArray global_lse(sum, global != nullptr ? global->lse : results.lse), delta(sum, junk_lse);
  const DeltaArgs row_sums{
      dtype,      sum,         static_cast<std::int64_t>(junk_lse.size()), shape.value_dim, global_o.data(),
      d_o.data(), delta.data()};
  kernels.delta({&row_sums, 1}, team, never);
  const AttendBackwardArgs backward{shape,        q.data(), d_o.data(), global_lse.data(), delta.data(),
                                    tile.queries, sides,    dq.data(),  tile.carry};
  kernels.attend_backward({&backward, 1}, team, never);
  results.dq = dq.values();
  for (std::size_t i = 0; i < sides.size(); ++i) {
    results.dk.push_back(dk[i].values());
    results.dv.push_back(dv[i].values());
  }
  return results;
}

}  // namespace

CaseInputs inputs_of(const TileCase& tile) {
  std::mt19937 random(tile.seed);
  std::normal_distribution<double> normal;
  const auto fill = [&](std::size_t count, DType dtype) {
    std::vector<double> values(count);
    for (double& value : values) value = normal(random);
    return TypedArray(dtype, values).values();
  };
  const TileShape& shape = tile.shape;
  const DType sum = accumulator_of(shape.dtype);
  CaseInputs inputs;
  inputs.q = fill(query_values(tile, shape.head_dim), shape.dtype);
  inputs.d_o = fill(query_values(tile, shape.value_dim), shape.dtype);
  if (tile.carry) {
    inputs.o = fill(query_values(tile, shape.value_dim), sum);
    inputs.lse = fill(query_values(tile, 1), sum);
    // Some rows have seen nothing yet.
    for (std::size_t row = 0; row < inputs.lse.size(); row += 3) {
      inputs.lse[row] = -INFINITY;
      std::fill_n(inputs.o.begin() + static_cast<std::ptrdiff_t>(row) * shape.value_dim, shape.value_dim, 0.0);
    }
  }
  inputs.dq = fill(query_values(tile, shape.head_dim), sum);
  for (const CaseSide& side : tile.sides) {
    inputs.k.push_back(fill(key_values(tile, side, shape.head_dim), shape.dtype));
    inputs.v.push_back(fill(key_values(tile, side, shape.value_dim), shape.dtype));
    inputs.dk.push_back(fill(key_values(tile, side, shape.head_dim), sum));
    inputs.dv.push_back(fill(key_values(tile, side, shape.value_dim), sum));
  }
  return inputs;
}

CaseResults run_case(const TileCase& tile, const CaseInputs& inputs, const HostKernels& kernels, Team& team,
                     const CaseResults* global) {
  return run_in(tile.shape.dtype, tile, inputs, kernels, team, global);
}

CaseResults run_exactly(const TileCase& tile, const CaseInputs& inputs, Team& team) {
  CaseResults exact = run_in(DType::fp64, tile, inputs, reference_kernels(), team, nullptr);
  HostKernels without_delta = reference_kernels();
  without_delta.delta = [](std::span<const DeltaArgs> operations, Team&, const StopFlag&) {
    for (const DeltaArgs& args : operations) std::fill_n(static_cast<double*>(args.delta), args.rows, 0.0);
  };
  CaseResults terms = run_in(DType::fp64, tile, inputs, without_delta, team, nullptr);
  exact.dq_terms = std::move(terms.dq);
  exact.dk_terms = std::move(terms.dk);
  return exact;
}

double relative_l2(const std::vector<double>& value, const std::vector<double>& exact,
                   const std::vector<double>& terms) {
  double error = 0, norm = 0, terms_norm = 0;
  for (const double term : terms) terms_norm += std::isfinite(term) ? term * term : 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (std::isfinite(value[i]) != std::isfinite(exact[i])) return NAN;
    if (!std::isfinite(exact[i])) continue;
    error += (value[i] - exact[i]) * (value[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return error == 0 ? 0 : std::sqrt(error / std::max(norm, terms_norm));
}

double largest_difference(const std::vector<double>& value, const std::vector<double>& exact) {
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (value[i] == exact[i] || (std::isnan(value[i]) && std::isnan(exact[i]))) continue;
    const double difference = std::abs(value[i] - exact[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

double tolerance_of(const TileCase& tile) {
  Problem problem;
  problem.dtype = problem.wire = accumulator_of(tile.shape.dtype);
  problem.seq_q = tile.queries.count;
  std::int64_t bands = 0;
  for (const CaseSide& side : tile.sides) {
    problem.seq_kv += side.keys.count;
    bands += static_cast<std::int64_t>(side.bands.size());
  }
  return tolerance(problem, bands);
}

}  // namespace distattn::test

#include "conformance/kernels/tile_case.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <random>
#include <stdexcept>

#include "cli/tools/tolerance.hpp"
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

/// Heads × tokens of rows, for each sequence of a batch.
struct ArrayShape {
  std::int64_t batch, heads, tokens, dim;
};
ArrayShape query_shape(const TileCase& tile, int dim) {
  return {tile.shape.batch, tile.shape.heads.q_count, tile.queries.count, dim};
}
ArrayShape key_shape(const TileCase& tile, const CaseSide& side, int dim) {
  return {tile.shape.batch, tile.shape.heads.kv_count, side.keys.count, dim};
}
std::size_t elements(const ArrayShape& shape) {
  return static_cast<std::size_t>(shape.batch * shape.heads * shape.tokens * shape.dim);
}

/// An array of rows in either arrangement; its values are given and taken as if packed.
class RowsArray {
 public:
  RowsArray(DType dtype, const ArrayShape& shape, const std::vector<double>& values, Arrangement arrangement)
      : dtype_(dtype), shape_(shape), arrangement_(arrangement), array_(dtype, arranged(values)) {}

  Rows rows() {
    if (arrangement_ == Arrangement::packed) return packed_rows(array_.data(), shape_.heads, shape_.tokens, shape_.dim);
    const std::int64_t row = shape_.dim + gap, token = shape_.heads * row;
    return {static_cast<std::byte*>(array_.data()) + lead * size_of(dtype_), {shape_.tokens * token, row, token}};
  }
  std::vector<double> values() const {
    const std::vector<double> all = array_.values();
    if (arrangement_ == Arrangement::packed) return all;
    std::vector<double> values(elements(shape_)), rest = all;
    for_each_row([&](std::size_t packed, std::size_t spread) {
      const auto at = static_cast<std::ptrdiff_t>(spread);
      std::copy_n(all.begin() + at, shape_.dim, values.begin() + static_cast<std::ptrdiff_t>(packed));
      std::fill_n(rest.begin() + at, shape_.dim, filling);
    });
    for (const double value : rest) {
      if (value != filling) throw std::logic_error("a kernel wrote between rows");
    }
    return values;
  }

 private:
  static constexpr std::size_t lead = 1;  // elements before the first row
  static constexpr std::int64_t gap = 3;  // and behind every row
  static constexpr double filling = 96;

  template <class Visit>
  void for_each_row(Visit visit) const {
    const auto dim = static_cast<std::size_t>(shape_.dim);
    std::size_t packed = 0;
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      for (std::int64_t h = 0; h < shape_.heads; ++h) {
        for (std::int64_t t = 0; t < shape_.tokens; ++t, packed += dim) {
          const std::int64_t row = (b * shape_.tokens + t) * shape_.heads + h;
          visit(packed, lead + static_cast<std::size_t>(row * (shape_.dim + gap)));
        }
      }
    }
  }
  std::vector<double> arranged(const std::vector<double>& values) const {
    if (arrangement_ == Arrangement::packed) return values;
    std::vector<double> all(
        lead + static_cast<std::size_t>(shape_.batch * shape_.heads * shape_.tokens * (shape_.dim + gap)), filling);
    for_each_row([&](std::size_t packed, std::size_t spread) {
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(packed), shape_.dim,
                  all.begin() + static_cast<std::ptrdiff_t>(spread));
    });
    return all;
  }

  DType dtype_;
  ArrayShape shape_;
  Arrangement arrangement_;
  TypedArray array_;
};

/// delta of every head's rows.
void run_delta(const HostKernels& kernels, Team& team, DType dtype, const ArrayShape& shape, const ConstRows& o,
               const ConstRows& d_o, void* delta) {
  const StopFlag never{false};
  const DType sum = accumulator_of(dtype);
  const auto advanced = [](const void* data, std::int64_t count, DType type) {
    return static_cast<const std::byte*>(data) + count * static_cast<std::int64_t>(size_of(type));
  };
  std::vector<DeltaArgs> operations;
  for (std::int64_t item = 0; item < shape.batch * shape.heads; ++item) {
    const std::int64_t b = item / shape.heads, h = item % shape.heads;
    operations.push_back({dtype, sum, shape.tokens, static_cast<int>(shape.dim),
                          advanced(o.data, o.offset(b, h, 0), sum), o.strides.token,
                          advanced(d_o.data, d_o.offset(b, h, 0), dtype), d_o.strides.token,
                          const_cast<std::byte*>(advanced(delta, item * shape.tokens, sum))});
  }
  kernels.delta(operations, team, never);
}

/// The array as kernels take it: null where statistics have no low part.
std::uint16_t* low_of(DType sum, TypedArray& low) {
  return sum == DType::fp32 ? static_cast<std::uint16_t*>(low.data()) : nullptr;
}
std::vector<double> what_floats_lose(const std::vector<double>& values) {
  std::vector<double> lost;
  for (const double value : values) {
    lost.push_back(std::isfinite(value) ? value - static_cast<double>(static_cast<float>(value)) : 0.0);
  }
  return lost;
}

/// Of mean 0 and variance 1: the sum of four uniform numbers. Normal ones took a third of the suite's time.
double nearly_normal(std::uint64_t bits) {
  constexpr std::uint64_t mask = 0xffff;
  const std::uint64_t sum = (bits & mask) + (bits >> 16 & mask) + (bits >> 32 & mask) + (bits >> 48);
  return (static_cast<double>(sum) - 2 * static_cast<double>(mask)) * (std::numbers::sqrt3 / static_cast<double>(mask));
}

CaseResults run_in(DType dtype, const TileCase& tile, const CaseInputs& inputs, const HostKernels& kernels, Team& team,
                   const CaseResults* global, Arrangement arrangement) {
  const StopFlag never{false};
  const DType sum = accumulator_of(dtype);
  TileShape shape = tile.shape;
  shape.dtype = dtype;
  const ArrayShape q_shape = query_shape(tile, shape.head_dim), o_shape = query_shape(tile, shape.value_dim);
  const std::vector<double> junk_o(elements(o_shape), 7.0), junk_lse(elements(query_shape(tile, 1)), 7.0);
  const auto rows = [&](DType type, const ArrayShape& of, const std::vector<double>& values) {
    return RowsArray(type, of, values, arrangement);
  };
  RowsArray q = rows(dtype, q_shape, inputs.q), d_o = rows(dtype, o_shape, inputs.d_o);
  RowsArray o = rows(sum, o_shape, tile.carry ? inputs.o : junk_o), dq = rows(sum, q_shape, inputs.dq);
  TypedArray lse(sum, tile.carry ? inputs.lse : junk_lse);
  TypedArray low(DType::fp16, !tile.carry              ? junk_lse
                              : inputs.lse_low.empty() ? std::vector<double>(junk_lse.size(), 0.0)
                                                       : inputs.lse_low);
  std::vector<RowsArray> k, v, dk, dv;
  std::vector<KeySide> sides;
  for (std::size_t i = 0; i < tile.sides.size(); ++i) {
    const ArrayShape k_shape = key_shape(tile, tile.sides[i], shape.head_dim);
    const ArrayShape v_shape = key_shape(tile, tile.sides[i], shape.value_dim);
    k.push_back(rows(dtype, k_shape, inputs.k[i]));
    v.push_back(rows(dtype, v_shape, inputs.v[i]));
    dk.push_back(rows(sum, k_shape, inputs.dk[i]));
    dv.push_back(rows(sum, v_shape, inputs.dv[i]));
    sides.push_back(
        {k[i].rows(), v[i].rows(), tile.sides[i].keys, tile.sides[i].bands, dk[i].rows(), dv[i].rows(), tile.carry});
  }
  const AttendArgs forward{.shape = shape,
                           .q = q.rows(),
                           .queries = tile.queries,
                           .keys = sides,
                           .o = o.rows(),
                           .lse = lse.data(),
                           .lse_low = low_of(sum, low),
                           .carry = tile.carry};
  kernels.attend({&forward, 1}, team, never);
  CaseResults results;
  results.o = o.values();
  results.lse = lse.values();
  if (sum == DType::fp32) results.lse_low = low.values();

  RowsArray global_o = rows(sum, o_shape, global != nullptr ? global->o : results.o);
  TypedArray global_lse(sum, global != nullptr ? global->lse : results.lse), delta(sum, junk_lse);
  TypedArray global_low(DType::fp16, global != nullptr    ? what_floats_lose(global->lse)
                                     : sum == DType::fp32 ? results.lse_low
                                                          : junk_lse);
  run_delta(kernels, team, dtype, o_shape, global_o.rows(), d_o.rows(), delta.data());
  const AttendBackwardArgs backward{.shape = shape,
                                    .q = q.rows(),
                                    .d_o = d_o.rows(),
                                    .lse = global_lse.data(),
                                    .lse_low = low_of(sum, global_low),
                                    .delta = delta.data(),
                                    .queries = tile.queries,
                                    .keys = sides,
                                    .dq = dq.rows(),
                                    .carry = tile.carry};
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
  std::mt19937_64 random(tile.seed);
  const auto fill = [&](std::size_t count, DType dtype) {
    std::vector<double> values(count);
    with_element(dtype, [&]<class Element>(Element) {
      for (double& value : values) value = static_cast<double>(rounded_to<Element>(nearly_normal(random())));
    });
    return values;
  };
  const TileShape& shape = tile.shape;
  const DType sum = accumulator_of(shape.dtype);
  CaseInputs inputs;
  inputs.q = fill(elements(query_shape(tile, shape.head_dim)), shape.dtype);
  inputs.d_o = fill(elements(query_shape(tile, shape.value_dim)), shape.dtype);
  if (tile.carry) {
    inputs.o = fill(elements(query_shape(tile, shape.value_dim)), sum);
    inputs.lse = fill(elements(query_shape(tile, 1)), sum);
    // Some rows have seen nothing yet.
    for (std::size_t row = 0; row < inputs.lse.size(); row += 3) {
      inputs.lse[row] = -INFINITY;
      std::fill_n(inputs.o.begin() + static_cast<std::ptrdiff_t>(row) * shape.value_dim, shape.value_dim, 0.0);
    }
  }
  inputs.dq = fill(elements(query_shape(tile, shape.head_dim)), sum);
  for (const CaseSide& side : tile.sides) {
    inputs.k.push_back(fill(elements(key_shape(tile, side, shape.head_dim)), shape.dtype));
    inputs.v.push_back(fill(elements(key_shape(tile, side, shape.value_dim)), shape.dtype));
    inputs.dk.push_back(fill(elements(key_shape(tile, side, shape.head_dim)), sum));
    inputs.dv.push_back(fill(elements(key_shape(tile, side, shape.value_dim)), sum));
  }
  return inputs;
}

CaseResults run_case(const TileCase& tile, const CaseInputs& inputs, const HostKernels& kernels, Team& team,
                     const CaseResults* global, Arrangement arrangement) {
  return run_in(tile.shape.dtype, tile, inputs, kernels, team, global, arrangement);
}

CaseResults run_exactly(const TileCase& tile, const CaseInputs& inputs, Team& team) {
  CaseResults exact = run_in(DType::fp64, tile, inputs, reference_kernels(), team, nullptr, Arrangement::packed);
  HostKernels without_delta = reference_kernels();  // nor a forward pass: the backward one takes what is exact
  without_delta.attend = [](std::span<const AttendArgs>, Team&, const StopFlag&) {};
  without_delta.delta = [](std::span<const DeltaArgs> operations, Team&, const StopFlag&) {
    for (const DeltaArgs& args : operations) std::fill_n(static_cast<double*>(args.delta), args.rows, 0.0);
  };
  CaseResults terms = run_in(DType::fp64, tile, inputs, without_delta, team, &exact, Arrangement::packed);
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

double tolerance_of(const TileCase& tile, DType coefficients) {
  Problem problem;
  problem.dtype = coefficients;
  problem.wire = accumulator_of(tile.shape.dtype);
  problem.seq_q = tile.queries.count;
  std::int64_t bands = 0;
  for (const CaseSide& side : tile.sides) {
    problem.seq_kv += side.keys.count;
    bands += static_cast<std::int64_t>(side.bands.size());
  }
  const double tolerated = tolerance(problem, bands);
  // What is promised of coefficients of 16 bit is less than what a message of them may add.
  return coefficients == problem.wire ? tolerated : std::min(tolerated, 3e-3);
}

}  // namespace distattn::test

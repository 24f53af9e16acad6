#include "expected.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace distattn::cli {
namespace {

/// Some heads of one sequence of an input, as a whole tensor.
class Slice {
 public:
  Slice(const Inputs& inputs, Tensor tensor, std::int64_t b, std::int64_t first_head, std::int64_t heads, DType dtype)
      : view_{dense_view<const std::byte>(nullptr, dtype, 1, inputs.tokens(tensor), heads, inputs.dim(tensor))} {
    const std::size_t row = static_cast<std::size_t>(heads * inputs.dim(tensor)) * size_of(dtype);
    bytes_.resize(static_cast<std::size_t>(inputs.tokens(tensor)) * row);
    for (std::int64_t s = 0; s < inputs.tokens(tensor); ++s) {
      inputs.read(tensor, b, s, first_head, heads, dtype, bytes_.data() + static_cast<std::size_t>(s) * row);
    }
    view_.data = bytes_.data();
  }
  const ConstTensorView& view() const { return view_; }
  /// Of a slice of doubles.
  std::span<const double> values() const {
    return {reinterpret_cast<const double*>(bytes_.data()), bytes_.size() / sizeof(double)};
  }

 private:
  std::vector<std::byte> bytes_;
  ConstTensorView view_;
};

/// How much Σ a[x] b[x] rounds is told by its terms' size, which is that of the sum unless they cancel.
double size_of_dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0, squares = 0;
  for (std::int64_t x = 0; x < count; ++x) {
    sum += a[x] * b[x];
    squares += a[x] * a[x] * b[x] * b[x];
  }
  return std::max(std::abs(sum), std::sqrt(squares));
}

/// delta's part of dq and dk, scale · delta · Σ P k and scale · Σ P delta q: as the weights P of a query sum up to one,
/// no more than scale · delta times the size of a key, or of the query.
Cancelling cancelling_in(const ExactResult& exact, const Problem& one, const Inputs& inputs, std::int64_t b,
                         std::int64_t kv_head) {
  const std::int64_t group = one.heads, dim = one.head_dim;
  const Slice q(inputs, Tensor::q, b, kv_head * group, group, DType::fp64),
      k(inputs, Tensor::k, b, kv_head, 1, DType::fp64),
      d_o(inputs, Tensor::d_o, b, kv_head * group, group, DType::fp64);
  const double of_k = root_mean_square(k.values()), key_squares = of_k * of_k * static_cast<double>(dim);
  Cancelling sums;
  for (std::int64_t row = 0; row < one.seq_q * group; ++row) {
    const double* const query = q.values().data() + row * dim;
    const std::int64_t first = row * one.value_dim;
    const double delta = size_of_dot(exact.o.data() + first, d_o.values().data() + first, one.value_dim);
    const double square = one.softmax_scale() * delta * one.softmax_scale() * delta;
    const Cancelling of_row{square * key_squares, square * std::inner_product(query, query + dim, query, 0.0)};
    if (std::isfinite(of_row.dq) && std::isfinite(of_row.dk)) sums.add(of_row);
  }
  return sums;
}

}  // namespace

double root_mean_square(std::span<const double> values) {
  double squares = 0;
  for (const double value : values) squares += std::isfinite(value) ? value * value : 0;
  return values.empty() ? 0 : std::sqrt(squares / static_cast<double>(values.size()));
}

double input_scale(const Inputs& inputs) {
  if (inputs.is_random()) return 1;
  const Shape& shape = inputs.shape();
  const std::int64_t group = shape.heads / shape.kv_heads;
  double largest = 0;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      const double q = root_mean_square(Slice(inputs, Tensor::q, b, kv_head * group, group, DType::fp64).values());
      const double k = root_mean_square(Slice(inputs, Tensor::k, b, kv_head, 1, DType::fp64).values());
      largest = std::max(largest, q * k);
    }
  }
  return largest;
}

Expected expected_of(const Problem& problem, const Inputs& inputs, std::int64_t b, std::int64_t kv_head, Passes passes,
                     int threads) {
  const std::int64_t group = problem.heads_per_kv();
  Problem one = problem;
  one.batch = one.kv_heads = 1;
  one.heads = group;
  const Slice q(inputs, Tensor::q, b, kv_head * group, group, problem.dtype);
  const Slice k(inputs, Tensor::k, b, kv_head, 1, problem.dtype), v(inputs, Tensor::v, b, kv_head, 1, problem.dtype);
  if (passes == Passes::forward) return {exact_attention(one, q.view(), k.view(), v.view(), {}, threads), {}};
  const Slice d_o(inputs, Tensor::d_o, b, kv_head * group, group, problem.dtype);
  Expected expected{exact_attention(one, q.view(), k.view(), v.view(), d_o.view(), threads), {}};
  expected.cancelling = cancelling_in(expected.exact, one, inputs, b, kv_head);
  return expected;
}

}  // namespace distattn::cli

/// The small CUDA kernels against the host's, which is the same arithmetic.

#include "kernels/elementwise.hpp"

#include <cmath>
#include <random>

#include "catch.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/element.hpp"
#include "simt/array.hpp"

namespace {

namespace kernels = distattn::kernels;
using distattn::DType;
using kernels::Bf16;
using kernels::Fp16;
using simt::Array;

constexpr unsigned test_seed = 21;
const kernels::StopFlag never{false};

kernels::Team& team() {
  static kernels::Team one(1);
  return one;
}

template <class T>
Array<T> drawn(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Array<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = kernels::rounded_to<T>(normal(random));
  return values;
}

template <class T>
constexpr DType dtype() {
  return std::is_same_v<T, Bf16> ? DType::bf16 : std::is_same_v<T, Fp16> ? DType::fp16 : DType::fp32;
}

template <class T>
void check_equal(const Array<T>& actual, const Array<T>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto a = static_cast<float>(actual[i]), e = static_cast<float>(expected[i]);
    if (a == e) continue;
    INFO("element " << i);
    CHECK(a == Approx(e).epsilon(4e-7).margin(1e-7));
  }
}

/// What the launcher returns once its kernel has ended.
template <class Args>
int run(int (*start)(const Args&, kernels::cuda::Stream), const Args& args) {
  return simt::run_kernels(5, [&](kernels::cuda::Stream stream) { return start(args, stream); });
}

int fill(float* into, std::int64_t count, float value) {
  return simt::run_kernels(
      5, [&](kernels::cuda::Stream stream) { return kernels::cuda::fill(into, count, value, stream); });
}

}  // namespace

TEMPLATE_TEST_CASE("merging", "[simt]", float, Bf16, Fp16) {
  constexpr std::size_t rows = 37, dim = 40;
  Array<float> o = drawn<float>(rows * dim, test_seed), lse = drawn<float>(rows, test_seed + 1);
  Array<TestType> from_o = drawn<TestType>(rows * dim, test_seed + 2);
  Array<float> from_lse = drawn<float>(rows, test_seed + 3);
  lse[0] = from_lse[1] = lse[2] = from_lse[2] = -INFINITY;
  lse[3] = 200;
  from_lse[4] = 200;
  Array<std::uint16_t> low(rows), from_low(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    if (i > 10) {  // of sizes whose low part is no small share of what the weights come from
      lse[i] = 40000 + lse[i];
      from_lse[i] = 40000 + from_lse[i];
    }
    low[i] = lse[i] == -INFINITY ? std::uint16_t{0} : kernels::rounded_to<Fp16>(lse[i] * 3e-8f).bits;
    from_low[i] = from_lse[i] == -INFINITY ? std::uint16_t{0} : kernels::rounded_to<Fp16>(from_lse[i] * -2e-8f).bits;
  }
  for (std::size_t x = 0; x < dim; ++x) {  // what an empty side holds does not count
    o[x] = NAN;
    from_o[dim + x] = kernels::rounded_to<TestType>(NAN);
  }
  Array<float> expected_o(o.values()), expected_lse(lse.values());
  Array<std::uint16_t> expected_low(low.values());
  kernels::MergeArgs args{.rows = rows,
                          .dim = dim,
                          .o = o.data(),
                          .lse = lse.data(),
                          .lse_low = low.data(),
                          .from_dtype = dtype<TestType>(),
                          .from_o = from_o.data(),
                          .from_lse = from_lse.data(),
                          .from_lse_low = from_low.data()};
  CHECK(run(kernels::cuda::merge, args) == 0);
  args.o = expected_o.data();
  args.lse = expected_lse.data();
  args.lse_low = expected_low.data();
  kernels::merge({&args, 1}, team(), never);
  check_equal(o, expected_o);
  check_equal(lse, expected_lse);
  for (std::size_t i = 0; i < rows; ++i) {
    CAPTURE(i);
    CHECK(distattn::fp16_to_float(low[i]) == Approx(distattn::fp16_to_float(expected_low[i])).margin(4e-7));
  }

  // The low parts may be missing.
  args.o = o.data();
  args.lse = lse.data();
  args.lse_low = nullptr;
  args.from_lse_low = nullptr;
  CHECK(run(kernels::cuda::merge, args) == 0);
  args.o = expected_o.data();
  args.lse = expected_lse.data();
  kernels::merge({&args, 1}, team(), never);
  check_equal(o, expected_o);
  check_equal(lse, expected_lse);
}

TEST_CASE("sink logits are merged into rows", "[simt]") {
  constexpr std::int64_t batch = 2, heads = 3, tokens = 7, dim = 40, rows = batch * heads * tokens;
  Array<float> o = drawn<float>(rows * dim, test_seed), lse = drawn<float>(rows, test_seed + 1);
  Array<float> logits = drawn<float>(heads, test_seed + 2);
  Array<std::uint16_t> low(rows);
  for (std::size_t i = 0; i < rows; ++i) low[i] = kernels::rounded_to<Fp16>(lse[i] * 3e-4f).bits;
  lse[0] = -INFINITY;
  low[0] = 0;
  for (std::size_t x = 0; x < dim; ++x) o[x] = 0;
  lse[20] = 300;
  Array<float> expected_o(o.values()), expected_lse(lse.values());
  Array<std::uint16_t> expected_low(low.values());
  kernels::SinkArgs args{.batch = batch,
                         .tokens = tokens,
                         .heads = heads,
                         .dim = dim,
                         .logits = logits.data(),
                         .o = kernels::packed_rows(static_cast<void*>(o.data()), heads, tokens, dim),
                         .lse = lse.data(),
                         .lse_low = low.data()};
  CHECK(run(kernels::cuda::merge_sinks, args) == 0);
  args.o.data = expected_o.data();
  args.lse = expected_lse.data();
  args.lse_low = expected_low.data();
  kernels::merge_sinks({&args, 1}, team(), never);
  check_equal(o, expected_o);
  check_equal(lse, expected_lse);
  for (std::size_t i = 0; i < rows; ++i) {
    CAPTURE(i);
    CHECK(distattn::fp16_to_float(low[i]) == Approx(distattn::fp16_to_float(expected_low[i])).margin(4e-7));
  }
}

TEST_CASE("gradients of sink logits are summed over all rows of a head", "[simt]") {
  // More lists of rows than a launch takes, of all heads or some, with more rows than a block has threads.
  constexpr std::int64_t batch = 2, tokens = 150, lists = 40;
  constexpr int heads = 5;
  Array<float> lse = drawn<float>(lists * batch * heads * tokens, test_seed);
  Array<float> delta = drawn<float>(lse.size(), test_seed + 1), logits = drawn<float>(heads, test_seed + 2);
  Array<std::uint16_t> low(lse.size());
  for (std::size_t i = 0; i < lse.size(); ++i) low[i] = kernels::rounded_to<Fp16>(lse[i] * 3e-4f).bits;
  std::vector<kernels::SinkRows> rows;
  for (std::int64_t i = 0; i < lists; ++i) {
    const std::int64_t first = i * batch * heads * tokens;
    rows.push_back({.batch = batch,
                    .tokens = i == 0 ? tokens : i % 3,
                    .first_head = i % 2 == 0 ? 0 : 2,
                    .heads = i % 2 == 0 ? heads : 3,
                    .lse = lse.data() + first,
                    .lse_low = i % 4 == 0 ? nullptr : low.data() + first,
                    .delta = delta.data() + first});
  }
  Array<float> gradients(heads, NAN), expected(heads);
  kernels::SinkGradientArgs args{.heads = heads, .logits = logits.data(), .gradients = gradients.data(), .rows = rows};
  CHECK(run(kernels::cuda::differentiate_sinks, args) == 0);
  args.gradients = expected.data();
  kernels::differentiate_sinks({&args, 1}, team(), never);
  for (std::size_t head = 0; head < heads; ++head) CHECK(gradients[head] == Approx(expected[head]).epsilon(2e-6));
}

TEMPLATE_TEST_CASE("accumulating", "[simt]", float, Bf16, Fp16) {
  constexpr std::size_t count = 1003;
  Array<float> into = drawn<float>(count, test_seed);
  const Array<TestType> from = drawn<TestType>(count, test_seed + 1);
  Array<float> expected(into.values());
  kernels::AccumulateArgs args{
      .count = count, .into = into.data(), .from_dtype = dtype<TestType>(), .from = from.data()};
  CHECK(run(kernels::cuda::accumulate, args) == 0);
  args.into = expected.data();
  kernels::accumulate({&args, 1}, team(), never);
  check_equal(into, expected);
}

TEMPLATE_TEST_CASE("converting", "[simt]", float, Bf16, Fp16) {
  constexpr std::size_t count = 777;
  const Array<float> from = drawn<float>(count, test_seed);
  Array<TestType> there(count), expected(count);
  Array<float> back(count);
  kernels::ConvertArgs args{.count = count, .into_dtype = dtype<TestType>(), .into = there.data(), .from = from.data()};
  CHECK(run(kernels::cuda::convert, args) == 0);
  args.into = expected.data();
  kernels::convert({&args, 1}, team(), never);
  check_equal(there, expected);
  args = {.count = count, .into = back.data(), .from_dtype = dtype<TestType>(), .from = there.data()};
  CHECK(run(kernels::cuda::convert, args) == 0);
  for (std::size_t i = 0; i < count; ++i) CHECK(back[i] == static_cast<float>(there[i]));
}

TEMPLATE_TEST_CASE("delta", "[simt]", float, Bf16, Fp16) {
  constexpr std::size_t rows = 21, dim = 72, o_stride = 80, d_o_stride = 72;
  const Array<float> o = drawn<float>(rows * o_stride, test_seed);
  const Array<TestType> d_o = drawn<TestType>(rows * d_o_stride, test_seed + 1);
  Array<float> delta(rows), expected(rows);
  kernels::DeltaArgs args{.dtype = dtype<TestType>(),
                          .rows = rows,
                          .dim = dim,
                          .o = o.data(),
                          .o_stride = o_stride,
                          .d_o = d_o.data(),
                          .d_o_stride = d_o_stride,
                          .delta = delta.data()};
  CHECK(run(kernels::cuda::delta, args) == 0);
  args.delta = expected.data();
  kernels::delta({&args, 1}, team(), never);
  for (std::size_t i = 0; i < rows; ++i) CHECK(delta[i] == Approx(expected[i]).margin(1e-5));
}

TEMPLATE_TEST_CASE("an output of its delta", "[simt]", float, Bf16, Fp16) {
  constexpr std::size_t rows = 21, dim = 72;
  Array<TestType> d_o = drawn<TestType>(rows * dim, test_seed);
  const auto scale_row = [&](std::size_t row, float by) {
    for (std::size_t x = 0; x < dim; ++x)
      d_o[row * dim + x] = kernels::rounded_to<TestType>(by * static_cast<float>(d_o[row * dim + x]));
  };
  scale_row(3, 0);  // a row that nobody asks about
  // Squares of these overflow, or vanish.
  const bool wide = dtype<TestType>() != DType::fp16;
  scale_row(5, wide ? 1e30f : 1e4f);
  scale_row(7, wide ? 1e-30f : 1e-4f);
  Array<float> delta = drawn<float>(rows, test_seed + 1);
  delta[3] = 0;
  delta[5] *= wide ? 1e30f : 1e4f;
  delta[7] *= wide ? 1e-30f : 1e-4f;
  Array<TestType> o(rows * dim);
  const kernels::cuda::OutputOfDeltaArgs args{
      .dtype = dtype<TestType>(), .rows = rows, .dim = dim, .d_o = d_o.data(), .delta = delta.data(), .o = o.data()};
  CHECK(run(kernels::cuda::output_of_delta, args) == 0);
  const double unit = std::is_same_v<TestType, float> ? 1e-6 : std::is_same_v<TestType, Bf16> ? 1.0 / 256 : 1.0 / 2048;
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0, size = 0, o_norm = 0, d_o_norm = 0;
    for (std::size_t i = row * dim; i < (row + 1) * dim; ++i) {
      const double product = static_cast<double>(static_cast<float>(o[i])) * static_cast<float>(d_o[i]);
      sum += product;
      size += std::abs(product);
      o_norm += std::pow(static_cast<float>(o[i]), 2);
      d_o_norm += std::pow(static_cast<float>(d_o[i]), 2);
    }
    CAPTURE(row);
    CHECK(std::abs(sum - delta[row]) <= unit * size);
    // The shortest: by Cauchy and Schwarz no other is shorter.
    CHECK(std::sqrt(o_norm * d_o_norm) <= std::abs(delta[row]) * (1 + 2 * unit));
  }
}

TEMPLATE_TEST_CASE("rearranging", "[simt]", float, Bf16, Fp16) {
  // [batch][sequence][heads][dim] of a rank into [batch][head][token][dim] of a part, and back.
  constexpr std::int64_t batch = 2, heads = 3, tokens = 7, dim = 136;  // more than a warp moves at a time
  constexpr std::size_t count = batch * heads * tokens * dim;
  const std::array<std::int64_t, 4> packed{heads * tokens * dim, tokens * dim, dim, 1};
  const std::array<std::int64_t, 4> rows{tokens * heads * dim, dim, heads * dim, 1};
  const Array<TestType> from = drawn<TestType>(count, test_seed);
  Array<TestType> part(count), expected(count);
  kernels::RearrangeArgs args{.shape = {batch, heads, tokens, dim},
                              .into_dtype = dtype<TestType>(),
                              .into = part.data(),
                              .into_strides = packed,
                              .from_dtype = dtype<TestType>(),
                              .from = from.data(),
                              .from_strides = rows};
  CHECK(run(kernels::cuda::rearrange, args) == 0);
  args.into = expected.data();
  kernels::rearrange({&args, 1}, team(), never);
  check_equal(part, expected);

  Array<float> sum = drawn<float>(count, test_seed + 1), expected_sum(sum.values());
  args = {.shape = {batch, heads, tokens, dim},
          .into = sum.data(),
          .into_strides = rows,
          .from_dtype = dtype<TestType>(),
          .from = part.data(),
          .from_strides = packed,
          .add = true};
  CHECK(run(kernels::cuda::rearrange, args) == 0);
  args.into = expected_sum.data();
  kernels::rearrange({&args, 1}, team(), never);
  check_equal(sum, expected_sum);
}

TEMPLATE_TEST_CASE("rearranging where neighbours cannot move together", "[simt]", float, Bf16, Fp16) {
  // Four elements at a time need rows of fours, side by side, that begin where fours do.
  struct Gap {
    std::int64_t dim, row, element, begin;
  };
  for (const Gap& gap : {Gap{16, 16, 1, 0}, {10, 12, 1, 0}, {16, 18, 1, 0}, {16, 20, 1, 2}, {16, 36, 2, 0}}) {
    CAPTURE(gap.dim, gap.row, gap.element, gap.begin);
    constexpr std::int64_t heads = 2, tokens = 5;
    const std::int64_t dim = gap.dim;
    const std::array<std::int64_t, 4> apart{tokens * heads * gap.row, gap.row, heads * gap.row, gap.element};
    const std::int64_t row = (dim + 3) / 4 * 4;
    const std::array<std::int64_t, 4> close{heads * tokens * row, tokens * row, row, 1};
    const auto sparse = static_cast<std::size_t>(gap.begin + tokens * heads * gap.row);
    const auto dense = static_cast<std::size_t>(heads * tokens * row);
    for (const bool back : {false, true}) {
      const Array<TestType> from = drawn<TestType>(back ? dense : sparse, test_seed);
      Array<TestType> into = drawn<TestType>(back ? sparse : dense, test_seed + 1), expected(into.values());
      kernels::RearrangeArgs args{.shape = {1, heads, tokens, dim},
                                  .into_dtype = dtype<TestType>(),
                                  .into = into.data() + (back ? gap.begin : 0),
                                  .into_strides = back ? apart : close,
                                  .from_dtype = dtype<TestType>(),
                                  .from = from.data() + (back ? 0 : gap.begin),
                                  .from_strides = back ? close : apart};
      CHECK(run(kernels::cuda::rearrange, args) == 0);
      args.into = expected.data() + (back ? gap.begin : 0);
      kernels::rearrange({&args, 1}, team(), never);
      check_equal(into, expected);
    }
  }
}

TEST_CASE("filling", "[simt]") {
  Array<float> values(300, 1.0f);
  CHECK(fill(values.data() + 1, 298, -INFINITY) == 0);
  CHECK((values[0] == 1.0f && values[299] == 1.0f));
  for (std::size_t i = 1; i < 299; ++i) CHECK(values[i] == -INFINITY);
  CHECK(fill(values.data(), 0, 0.0f) == 0);
}

#include "distattn/convert.hpp"

#include <vector>

#include "cli/tools/random.hpp"
#include "distattn/float16.hpp"

#include "catch.hpp"

using namespace distattn;

namespace {

template <class From, class Into>
std::vector<Into> converted(const std::vector<From>& from, DType from_dtype, DType into_dtype) {
  std::vector<Into> into(from.size());
  convert(reinterpret_cast<const std::byte*>(from.data()), from_dtype, reinterpret_cast<std::byte*>(into.data()),
          into_dtype, static_cast<std::int64_t>(from.size()));
  return into;
}

}  // namespace

TEST_CASE("conversion rounds to nearest even", "[convert]") {
  const std::vector<float> values = {1.f, 1.f + 0x1p-8f, 1.f + 0x3p-8f, 1e30f, -0.f};
  const auto bits = converted<float, std::uint16_t>(values, DType::fp32, DType::bf16);
  CHECK(bits == std::vector<std::uint16_t>{0x3f80, 0x3f80, 0x3f82, float_to_bf16(1e30f), 0x8000});
  CHECK(converted<std::uint16_t, double>({0x3c01}, DType::fp16, DType::fp64) == std::vector<double>{1 + 0x1p-10});
  CHECK(converted<double, float>({0.1}, DType::fp64, DType::fp32) == std::vector<float>{0.1f});
}

TEST_CASE("float64 is rounded to 16 bits once", "[convert]") {
  const double above_half = 1 + 0x1p-8 + 0x1p-40, below_half = 1 + 0x3p-8 - 0x1p-40;  // as float: the halves themselves
  const std::vector<double> values = {above_half, -above_half, below_half, -below_half, 1e300, 1e-300, -0.0};
  CHECK(converted<double, std::uint16_t>(values, DType::fp64, DType::bf16) ==
        std::vector<std::uint16_t>{0x3f81, 0xbf81, 0x3f81, 0xbf81, 0x7f80, 0, 0x8000});
  CHECK(converted<double, std::uint16_t>({1 + 0x1p-11 + 0x1p-40, 65520 - 0x1p-30}, DType::fp64, DType::fp16) ==
        std::vector<std::uint16_t>{0x3c01, 0x7bff});
}

TEST_CASE("extract_shard takes a rank's tokens in the order of its segments", "[convert]") {
  const std::int64_t first = GENERATE(0, -2);  // more queries than keys: negative positions
  const bool fortran = GENERATE(false, true);
  constexpr std::int64_t batch = 2, tokens = 7, heads = 2, dim = 3;
  std::vector<double> whole(batch * tokens * heads * dim);
  auto view = dense_view(reinterpret_cast<std::byte*>(whole.data()), DType::fp64, batch, tokens, heads, dim);
  if (fortran) view.strides = {1, batch, batch * tokens, batch * tokens * heads};
  const auto value = [](std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t x) {
    return static_cast<double>(1000 * b + 100 * s + 10 * h + x);
  };
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t s = 0; s < tokens; ++s) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t x = 0; x < dim; ++x) {
          reinterpret_cast<double*>(view.row(b, s, h))[x * view.strides[3]] = value(b, s, h, x);
        }
      }
    }
  }
  const std::vector<Segment> segments = {
      {{first + 5, 2, 1}, 1}, {{first, 1, 1}, 0}, {{first + 1, 2, 3}, 1}, {{first + 2, 0, 1}, 1}};
  const std::vector<std::int64_t> expected = {5, 6, 1, 4};
  std::vector<float> local(batch * expected.size() * heads * dim, -1.f);
  const auto into =
      dense_view(reinterpret_cast<std::byte*>(local.data()), DType::fp32, batch, std::ssize(expected), heads, dim);
  extract_shard(view, first, segments, 1, into);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t i = 0; i < std::ssize(expected); ++i) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t x = 0; x < dim; ++x) {
          const float stored = reinterpret_cast<const float*>(into.row(b, i, h))[x];
          REQUIRE(stored == static_cast<float>(value(b, expected[static_cast<std::size_t>(i)], h, x)));
        }
      }
    }
  }
}

TEST_CASE("insert_shard puts back what extract_shard took", "[convert]") {
  constexpr std::int64_t tokens = 23, heads = 2, dim = 3, ranks = 4;
  std::vector<float> whole(tokens * heads * dim), again(whole.size(), -1.f);
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  const auto view = [](std::vector<float>& values, std::int64_t count) {
    return dense_view(reinterpret_cast<std::byte*>(values.data()), DType::fp32, 1, count, heads, dim);
  };
  const std::vector<Segment> segments = zigzag_segments(tokens, ranks);
  for (Rank rank = 0; rank < ranks; ++rank) {
    const std::int64_t mine = std::ssize(positions(segments, rank));
    std::vector<float> local(static_cast<std::size_t>(mine) * heads * dim);
    extract_shard(view(whole, tokens), 0, segments, rank, view(local, mine));
    insert_shard(view(local, mine), segments, rank, 0, view(again, tokens));
  }
  CHECK(again == whole);
}

TEST_CASE("both refuse tensors that differ in more than tokens", "[convert]") {
  std::vector<float> memory(1024, 1);
  const std::vector<Segment> segments = {{{0, 4, 1}, 0}};
  const TensorView whole = dense_view(memory.data(), 2, 4, 8, 3);
  const auto require_refused = [&](const TensorView& local, std::int64_t first, const char* why) {
    REQUIRE_THROWS_WITH(extract_shard(whole, first, segments, 0, local), contains_text(why));
    REQUIRE_THROWS_WITH(insert_shard(local, segments, 0, first, whole), contains_text(why));
  };
  require_refused(dense_view(memory.data(), 1, 4, 8, 3), 0, "batch 1");
  require_refused(dense_view(memory.data(), 2, 4, 2, 3), 0, "2 heads of 3");
  require_refused(dense_view(memory.data(), 2, 4, 8, 2), 0, "8 heads of 2");
  require_refused(dense_view(memory.data(), 2, 3, 8, 3), 0, "tensor of 3 tokens");
  require_refused(whole, 1, "tokens -1 to 2");
  require_refused(whole, -1, "tokens 1 to 4");
  TensorView on_device = whole;
  on_device.space = MemorySpace::cuda;
  require_refused(on_device, 0, "device's memory");
  CHECK_NOTHROW(extract_shard(whole, 0, segments, 1, dense_view(memory.data(), 2, 0, 8, 3)));
}

TEST_CASE("random values depend on seed, tensor and position only", "[random]") {
  std::vector<float> all(1000), part(100);
  fill_normal(7, RandomTensor::k, 0, 1000, DType::fp32, reinterpret_cast<std::byte*>(all.data()));
  fill_normal(7, RandomTensor::k, 300, 100, DType::fp32, reinterpret_cast<std::byte*>(part.data()));
  CHECK(std::equal(part.begin(), part.end(), all.begin() + 300));
  CHECK(all[0] == static_cast<float>(random_normal(7, RandomTensor::k, 0)));
  CHECK(random_normal(7, RandomTensor::k, 0) != random_normal(8, RandomTensor::k, 0));
  CHECK(random_normal(7, RandomTensor::k, 0) != random_normal(7, RandomTensor::v, 0));
}

TEST_CASE("random values are standard normal", "[random]") {
  constexpr std::int64_t count = 1'000'000;
  double moments[5] = {};
  std::int64_t beyond_two = 0, beyond_four = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = random_normal(0, RandomTensor::q, i);
    REQUIRE(std::abs(x) < 8.3);
    double power = 1;
    for (double& moment : moments) {
      moment += power / count;
      power *= x;
    }
    beyond_two += std::abs(x) > 2;
    beyond_four += std::abs(x) > 4;
  }
  // Five standard errors of a million draws.
  CHECK(std::abs(moments[1]) < 0.005);
  CHECK(std::abs(moments[2] - 1) < 0.0071);
  CHECK(std::abs(moments[3]) < 0.02);
  CHECK(std::abs(moments[4] - 3) < 0.05);
  CHECK(std::abs(static_cast<double>(beyond_two) - 45500.) < 1100.);
  CHECK(std::abs(static_cast<double>(beyond_four) - 63.) < 40.);
}

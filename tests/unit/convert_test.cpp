#include "distattn/convert.hpp"

#include <vector>

#include "distattn/float16.hpp"
#include "distattn/random.hpp"

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

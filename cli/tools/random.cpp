#include "cli/tools/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/src/problem/splitmix.hpp"
#include "distattn/convert.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

using splitmix::golden;
using splitmix::mix;

std::uint64_t stream_of(std::uint64_t seed, RandomTensor tensor) {
  return mix(mix(seed + golden) + golden * (static_cast<std::uint64_t>(tensor) + 1));
}

/// The standard normal quantile of 0 < p < 1.
double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0);
  }
  const double tail = std::sqrt(-std::log(q < 0 ? p : 1.0 - p));
  double x = 0;
  if (tail <= 5.0) {
    const double r = tail - 1.6;
    x = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
        ((0.12021132975 * r + 0.73700164250) * r + 1.0);
  } else {
    const double r = tail - 5.0;
    x = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) /
        ((0.012258202635 * r + 0.24197894225) * r + 1.0);
  }
  return q < 0 ? -x : x;
}

double normal_at(std::uint64_t stream, std::int64_t index) {
  const std::uint64_t bits = mix(stream + golden * static_cast<std::uint64_t>(index)) >> 11;
  return normal_quantile((static_cast<double>(bits) + 0.5) * 0x1p-53);
}

}  // namespace

double random_normal(std::uint64_t seed, RandomTensor tensor, std::int64_t index) {
  return normal_at(stream_of(seed, tensor), index);
}

void fill_normal(std::uint64_t seed, RandomTensor tensor, std::int64_t first, std::int64_t count, DType dtype,
                 std::byte* into) {
  const std::uint64_t stream = stream_of(seed, tensor);
  std::array<double, 256> values;
  for (std::int64_t done = 0; done < count;) {
    const auto part = std::min<std::int64_t>(count - done, static_cast<std::int64_t>(values.size()));
    for (std::int64_t i = 0; i < part; ++i) values[index(i)] = normal_at(stream, first + done + i);
    convert(reinterpret_cast<const std::byte*>(values.data()), DType::fp64, into + index(done) * size_of(dtype), dtype,
            part);
    done += part;
  }
}

}  // namespace distattn

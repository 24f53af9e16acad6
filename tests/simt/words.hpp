#pragma once
/// Words that a primitive's kernel is given and those that it leaves.

#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "catch.hpp"
#include "simt/array.hpp"
#include "simt/primitive_kernels.hpp"

namespace simt {

using Words = std::vector<std::uint32_t>;

constexpr unsigned test_seed = 17;
constexpr std::uint64_t schedules = 5;  ///< seeds of the emulator

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// A word for each of 0 … count-1.
inline Words listed(std::size_t count, const std::function<std::uint32_t(std::uint32_t)>& word_of) {
  Words words(count);
  for (std::uint32_t i = 0; i < count; ++i) words[i] = word_of(i);
  return words;
}

inline Words random_words(std::size_t count) {
  std::mt19937 random(test_seed);
  return listed(count, [&](std::uint32_t) { return static_cast<std::uint32_t>(random()); });
}

/// What the kernel leaves of `out_count` words, all 0 before.
inline Words result_of(primitive::Kernel kernel, const Words& in, std::size_t out_count, std::uint64_t seed = 0,
                       int flag = 0) {
  const Array<std::uint32_t> input{std::span<const std::uint32_t>(in)};
  Array<std::uint32_t> out(out_count);
  const Array<int> raised(1, flag);
  Array<primitive::TensorMap> maps(2);
  const primitive::Arguments args{input.data(), out.data(), raised.data(), static_cast<std::uint32_t>(in.size()),
                                  maps.data()};
  REQUIRE(run_kernels(seed, [&](primitive::Stream stream) { return kernel(args, stream); }) == 0);
  return {out.values().begin(), out.values().end()};
}

inline void check_words(primitive::Kernel kernel, const Words& in, const Words& want) {
  for (std::uint64_t seed = 0; seed < schedules; ++seed) CHECK(result_of(kernel, in, want.size(), seed) == want);
}

}  // namespace simt

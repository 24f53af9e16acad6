/// What each primitive does, as the PTX ISA has it: the emulator and the GPU, where there is one, meet the same values.

#include <algorithm>
#include <cmath>

#include "distattn/float16.hpp"
#include "simt/words.hpp"

namespace {

using namespace simt;

/// As 16-bit elements: not numbers are all one.
std::uint32_t canonical(std::uint16_t element, std::uint32_t infinity) {
  return (element & 0x7fffu) > infinity ? infinity + 1 : element;
}

void check_narrowing(primitive::Kernel kernel, std::uint16_t (*exact)(float), std::uint32_t infinity) {
  Words in = random_words(4000);
  for (std::uint32_t i = 0; i < 2000; ++i)
    in[i] = bits_of(std::ldexp(float_of(in[i] % 0x1000000), 126 - static_cast<int>(i % 30)));
  for (const float value : {0.0f, -0.0f, 1e-45f, 65504.0f, 65519.9f, 65520.0f, INFINITY, -INFINITY, NAN}) {
    in.push_back(bits_of(value));
  }
  for (std::uint32_t i = 0; i < 200; ++i) in.push_back(bits_of(1) + i * 0x800);  // ties of either type
  const Words out = result_of(kernel, in, in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint32_t want = canonical(exact(float_of(in[i])), infinity);
    CAPTURE(in[i], float_of(in[i]));
    CHECK(canonical(static_cast<std::uint16_t>(out[i]), infinity) == want);
    CHECK(canonical(static_cast<std::uint16_t>(out[i] >> 16), infinity) == want);
  }
}

void check_widening(primitive::Kernel kernel, float (*exact)(std::uint16_t)) {
  const Words out = result_of(kernel, listed(0x10000, [](std::uint32_t i) { return i; }), 0x10000);
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const float want = exact(static_cast<std::uint16_t>(i)), got = float_of(out[i]);
    if (!(got == want || (std::isnan(got) && std::isnan(want)))) FAIL_CHECK(i << " became " << got << ", not " << want);
  }
}

/// Integers that every type holds exactly: a is 16×16, b 16×8, d 16×8.
int a_of(int row, int k) { return (row * 3 + k * 5) % 7 - 3; }
int b_of(int k, int column) { return (k * 2 + column * 3) % 5 - 2; }
int d_of(int row, int column) { return row * 8 + column; }

void check_product(primitive::Kernel kernel, std::uint16_t (*element)(float)) {
  const auto pair = [&](int low, int high) {
    return static_cast<std::uint32_t>(element(static_cast<float>(low))) |
           static_cast<std::uint32_t>(element(static_cast<float>(high))) << 16;
  };
  Words in, want;
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, column = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const int row = group + i % 2 * 8, k = column + i / 2 * 8;
      in.push_back(pair(a_of(row, k), a_of(row, k + 1)));
    }
    for (int i = 0; i < 2; ++i) in.push_back(pair(b_of(column + 8 * i, group), b_of(column + 8 * i + 1, group)));
    for (int i = 0; i < 4; ++i) {
      const int row = group + i / 2 * 8, at = column + i % 2;
      int sum = d_of(row, at);
      in.push_back(bits_of(static_cast<float>(sum)));
      for (int k = 0; k < 16; ++k) sum += a_of(row, k) * b_of(k, at);
      want.push_back(bits_of(static_cast<float>(sum)));
    }
  }
  check_words(kernel, in, want);
}

}  // namespace

TEST_CASE("ex2", "[primitives]") {
  constexpr float ulps = 3 * 1.2e-7f;
  Words in;
  for (float x = -140; x < 128; x += 0.37f) in.push_back(bits_of(x));
  for (const float x : {-0.0f, -1e-30f, -151.0f, -1e4f, -1e12f, -3e38f, -INFINITY}) in.push_back(bits_of(x));
  const Words out = result_of(primitive::ex2, in, in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float want = std::exp2(float_of(in[i]));
    CHECK(std::abs(float_of(out[i]) - want) <= std::max(want * ulps, 1.2e-38f));  // denormals may be flushed
  }
}

TEST_CASE("the smaller of two numbers, or NaN", "[primitives]") {
  Words in;
  for (const float x : {1.0f, -2.0f, 0.0f, NAN, -3.0f, INFINITY, NAN, -INFINITY, 5.0f}) in.push_back(bits_of(x));
  const Words out = result_of(primitive::min_or_nan, in, in.size());
  for (std::size_t i = 0; i + 1 < in.size(); ++i) {
    const float a = float_of(in[i]), b = float_of(in[i + 1]), smaller = float_of(out[i]);
    CAPTURE(a, b);
    if (std::isnan(a) || std::isnan(b)) {
      CHECK(std::isnan(smaller));
    } else {
      CHECK(smaller == std::min(a, b));
    }
  }
}

TEST_CASE("products are rounded where they are added to", "[primitives]") {
  Words in;
  for (int i = 0; i < 200; ++i) in.push_back(bits_of(1 + static_cast<float>(i * i + 1) * 0x1p-23f));
  const Words out = result_of(primitive::product, in, in.size());
  for (std::size_t i = 0; i + 1 < in.size(); ++i) {
    const double exact = static_cast<double>(float_of(in[i])) * static_cast<double>(float_of(in[i + 1]));
    CHECK(float_of(out[i]) == static_cast<float>(exact) - 1.0f);
  }
}

TEST_CASE("to_float, from_float and pack", "[primitives]") {
  check_widening(primitive::bf16_to_float, distattn::bf16_to_float);
  check_widening(primitive::fp16_to_float, distattn::fp16_to_float);
  check_narrowing(primitive::float_to_bf16, distattn::float_to_bf16, 0x7f80);
  check_narrowing(primitive::float_to_fp16, distattn::float_to_fp16, 0x7c00);
}

TEST_CASE("load_global, store_global and add_global", "[primitives]") {
  const Words in = random_words(400);
  check_words(primitive::move_global, in, in);
  check_words(primitive::add_global, {0}, {bits_of(4 * 96)});
}

TEST_CASE("raised and any_thread", "[primitives]") {
  for (const int flag : {0, 1}) {
    for (const std::uint32_t thread : {0u, 40u, 64u}) {
      const std::uint32_t want = (flag != 0 ? 1u : 0u) | (thread < 64 ? 2u : 0u);
      CHECK(result_of(primitive::votes, {thread}, 64, 1, flag) == Words(64, want));
    }
  }
}

TEST_CASE("shared_address, load_shared and store_shared", "[primitives]") {
  const Words in = random_words(64);
  Words want = listed(64, [&](std::uint32_t i) { return in[63 - i]; });
  for (std::uint32_t i = 0; i < 64; ++i) want.insert(want.end(), {in[63 - i], ~in[63 - i]});
  check_words(primitive::move_shared, in, want);
}

TEST_CASE("copy_async, commit_copies and wait_for_copies", "[primitives]") {
  const Words in = random_words(128);
  check_words(primitive::copy_async, in, listed(160, [&](std::uint32_t i) {
                const std::uint32_t lane = i < 128 ? i / 4 : i - 128;
                return lane % 2 == 0 ? in[i % 128] : 0;
              }));
  check_words(primitive::copy_groups, in, listed(64, [&](std::uint32_t i) { return in[i ^ 1u]; }));
}

TEST_CASE("load_matrices", "[primitives]") {
  const auto element = [](std::uint32_t matrix, std::uint32_t row, std::uint32_t column) {
    return matrix * 64 + row * 8 + column;
  };
  const Words in = listed(128, [](std::uint32_t i) { return 2 * i | (2 * i + 1) << 16; });
  check_words(primitive::load_matrices, in, listed(128, [&](std::uint32_t i) {
                const std::uint32_t lane = i / 4, matrix = i % 4, row = lane / 4, column = lane % 4 * 2;
                return element(matrix, row, column) | element(matrix, row, column + 1) << 16;
              }));
  check_words(primitive::load_matrices_transposed, in, listed(128, [&](std::uint32_t i) {
                const std::uint32_t lane = i / 4, matrix = i % 4, column = lane / 4, row = lane % 4 * 2;
                return element(matrix, row, column) | element(matrix, row + 1, column) << 16;
              }));
}

TEST_CASE("mma", "[primitives]") {
  check_product(primitive::mma_bf16, distattn::float_to_bf16);
  check_product(primitive::mma_fp16, distattn::float_to_fp16);
}

TEST_CASE("barrier_sync and barrier_arrive", "[primitives]") {
  const Words in = random_words(128);
  check_words(primitive::barriers, in, in);
}

TEST_CASE("shuffles", "[primitives]") {
  check_words(primitive::shuffles, listed(32, [](std::uint32_t i) { return i * i; }), listed(32, [](std::uint32_t i) {
                std::uint32_t sum = 0;
                for (std::uint32_t lane = i / 16 * 16; lane < i / 16 * 16 + 16; ++lane) sum += lane * lane;
                return sum + 9000;
              }));
}

TEST_CASE("launch", "[primitives]") {
  check_words(primitive::launch, {0}, listed(192, [](std::uint32_t i) { return i / 64 * 1000 + i % 64; }));
}

#pragma once
/// kernels/cuda/primitives.cuh for a host compiler: the same names on the emulator. Layouts of fragments after the
/// PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix".

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "distattn/float16.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/element.hpp"
#include "simt/language.hpp"
#include "simt/products.hpp"
#include "simt/queue.hpp"

#define DISTATTN_UNROLL
#define DISTATTN_NO_UNROLL
#define DISTATTN_SHARED_MEMORY(name) std::byte* const name = ::simt::machine().shared_memory()

namespace distattn::kernels::cuda::prim {

inline float ex2(float x) { return std::exp2(x); }
inline float min_or_nan(float a, float b) { return a < b || a != a ? a : b; }
inline float max_or_nan(float a, float b) { return a > b || a != a ? a : b; }
inline float reciprocal(float x) { return 1 / x; }
inline float product(float a, float b) { return static_cast<float>(static_cast<double>(a) * static_cast<double>(b)); }

inline float to_float(Bf16 x) { return bf16_to_float(x.bits); }
inline float to_float(Fp16 x) { return fp16_to_float(x.bits); }
inline float to_float(float x) { return x; }
inline float to_float(double x) { return static_cast<float>(x); }
template <class Element>
Element from_float(float x);
template <>
inline Bf16 from_float<Bf16>(float x) {
  return {float_to_bf16(x)};
}
template <>
inline Fp16 from_float<Fp16>(float x) {
  return {float_to_fp16(x)};
}
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline double from_float<double>(float x) {
  return static_cast<double>(x);
}

template <class Element>
std::uint32_t pack(float low, float high) {
  return static_cast<std::uint32_t>(from_float<Element>(low).bits) |
         static_cast<std::uint32_t>(from_float<Element>(high).bits) << 16;
}

template <class T>
T load_global(const T* from) {
  simt::machine().on_global(from, sizeof(T), simt::Access::read, "ld.global");
  return *from;
}
template <class T>
void store_global(T* into, T value) {
  simt::machine().on_global(into, sizeof(T), simt::Access::write, "st.global");
  *into = value;
}
inline void add_global(float* into, float value) {
  simt::machine().on_global(into, sizeof(float), simt::Access::atomic, "red.global");
  *into += value;
}
inline void raise_global(float* into, float value) {
  simt::machine().on_global(into, sizeof(float), simt::Access::atomic, "red.global");
  if (!(*into >= value || *into != *into)) *into = value;
}
inline bool raised(const int* flag) { return flag != nullptr && *flag != 0; }
inline bool any_thread(bool value) { return simt::machine().any_thread(value); }

inline std::uint32_t shared_address(const void* pointer) {
  return simt::shared_base +
         static_cast<std::uint32_t>(static_cast<const std::byte*>(pointer) - simt::machine().shared_memory());
}
template <class T>
T load_shared(std::uint32_t address) {
  T value;
  std::memcpy(&value, simt::machine().shared(address, sizeof(T), sizeof(T), "ld.shared"), sizeof(T));
  simt::machine().on_shared_read(address, sizeof(T), "ld.shared");
  return value;
}
template <class T>
void store_shared(std::uint32_t address, T value) {
  std::memcpy(simt::machine().shared(address, sizeof(T), sizeof(T), "st.shared"), &value, sizeof(T));
  simt::machine().on_shared_write(address, sizeof(T), "st.shared");
}

inline void copy_async_16(std::uint32_t into, const void* from, bool valid) {
  simt::machine().start_copy(into, from, 16, !valid);
}
inline void copy_async_4(std::uint32_t into, const void* from, bool valid) {
  simt::machine().start_copy(into, from, 4, !valid);
}
inline void commit_copies() { simt::machine().commit_copies(); }
template <int groups>
void wait_for_copies() {
  simt::machine().wait_for_copies(groups);
}

inline void barrier_sync(int id, int threads) {
  simt::machine().barrier(static_cast<unsigned>(id), static_cast<unsigned>(threads), true);
}
inline void barrier_arrive(int id, int threads) {
  simt::machine().barrier(static_cast<unsigned>(id), static_cast<unsigned>(threads), false);
}

namespace emulated {

/// Extra cycles that eight rows of 16 bytes cost when some of them share a group of four banks.
inline unsigned bank_conflicts(const std::uint32_t (&rows)[8]) {
  unsigned touched = 0;
  for (std::uint32_t row : rows) touched |= 1u << (row / 16 % 8);
  return 8u - static_cast<unsigned>(std::popcount(touched));
}

template <bool transposed>
void load_matrices(std::uint32_t (&fragment)[4], std::uint32_t row_address) {
  struct Lane {
    std::uint32_t row_address;
    std::uint32_t* fragment;
  } mine{row_address, fragment};
  const char* const name = transposed ? "ldmatrix.trans" : "ldmatrix";
  simt::machine().shared(row_address, 16, 16, name);
  simt::machine().on_shared_read(row_address, 16, name);
  simt::machine().collective(name, simt::all_lanes, &mine, [name](void** lanes) {
    for (int m = 0; m < 4; ++m) {
      std::uint16_t matrix[8][8];
      std::uint32_t rows[8];
      for (int r = 0; r < 8; ++r) {
        rows[r] = static_cast<Lane*>(lanes[8 * m + r])->row_address;
        std::memcpy(matrix[r], simt::machine().shared(rows[r], 16, 16, name), 16);
      }
      simt::machine().count_bank_conflicts(bank_conflicts(rows));
      for (int lane = 0; lane < 32; ++lane) {
        const int group = lane / 4, pair = lane % 4 * 2;
        const std::uint32_t low = transposed ? matrix[pair][group] : matrix[group][pair];
        const std::uint32_t high = transposed ? matrix[pair + 1][group] : matrix[group][pair + 1];
        static_cast<Lane*>(lanes[lane])->fragment[m] = low | high << 16;
      }
    }
  });
}

template <class Element>
float low_of(std::uint32_t pair) {
  return to_float(Element{static_cast<std::uint16_t>(pair)});
}
template <class Element>
float high_of(std::uint32_t pair) {
  return to_float(Element{static_cast<std::uint16_t>(pair >> 16)});
}

}  // namespace emulated

inline void load_matrices(std::uint32_t (&fragment)[4], std::uint32_t row_address) {
  emulated::load_matrices<false>(fragment, row_address);
}
inline void load_matrices_transposed(std::uint32_t (&fragment)[4], std::uint32_t row_address) {
  emulated::load_matrices<true>(fragment, row_address);
}

template <class Element>
void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  struct Lane {
    float* d;
    const std::uint32_t* a;
    std::uint32_t b[2];
  } mine{d, a, {b0, b1}};
  simt::machine().collective("mma.m16n8k16", simt::all_lanes, &mine, [](void** lanes) {
    using emulated::high_of, emulated::low_of;
    float A[16][16], B[16][8], D[16][8];
    const auto for_each_sum = [&](auto act) {
      for (int lane = 0; lane < 32; ++lane) {
        float* const its = static_cast<Lane*>(lanes[lane])->d;
        for (int i = 0; i < 4; ++i) act(its[i], D[lane / 4 + (i >> 1) * 8][lane % 4 * 2 + (i & 1)]);
      }
    };
    for (int lane = 0; lane < 32; ++lane) {
      const auto& its = *static_cast<Lane*>(lanes[lane]);
      const int group = lane / 4, pair = lane % 4 * 2;
      for (int i = 0; i < 4; ++i) {
        const int row = group + (i & 1) * 8, column = pair + (i >> 1) * 8;
        A[row][column] = low_of<Element>(its.a[i]);
        A[row][column + 1] = high_of<Element>(its.a[i]);
      }
      for (int i = 0; i < 2; ++i) {
        B[pair + 8 * i][group] = low_of<Element>(its.b[i]);
        B[pair + 8 * i + 1][group] = high_of<Element>(its.b[i]);
      }
    }
    for_each_sum([](const float& own, float& sum) { sum = own; });
    simt::add_products(D[0], A, B[0], 8);
    for_each_sum([](float& own, const float& sum) { own = sum; });
  });
}

/// Fewer than most launches have blocks.
inline unsigned multiprocessors() { return 2; }

/// `stream` points to a Queue. Without blocks nothing is started.
template <class Params>
int launch(void (*kernel)(Params), const LaunchShape& shape, Stream stream, const Params& params) {
  if (shape.blocks == 0) return 0;
  auto& queue = *static_cast<simt::Queue*>(stream);
  const simt::Launch emulated{shape.blocks, shape.threads, shape.shared_bytes, queue.next_seed()};
  queue.submit([kernel, emulated, params] { simt::launch(kernel, emulated, params); });
  return 0;
}

}  // namespace distattn::kernels::cuda::prim

#pragma once
/// The conformance suite of kernel tables: every table computes every case, or says in words why not.

#include <functional>
#include <string>
#include <vector>

#include "conformance/kernels/tile_case.hpp"

namespace distattn::test {

struct Exclusion {
  std::function<bool(const TileCase&)> matches;
  std::string reason;
};

/// Masks, strides, lengths, head maps, dimensions, element types and carries, each near the edges of blocks and tiles.
std::vector<TileCase> named_cases();
/// `count` cases drawn from a seed; a case's name holds what reproduces it.
std::vector<TileCase> random_cases(unsigned seed, int count);

/// Compares `kernels` with float64 in every case that no exclusion matches.
void check_against_float64(const HostKernels& kernels, const std::vector<TileCase>& cases,
                           const std::vector<Exclusion>& exclusions);
/// Teams of 1 … 4 threads give the same bits.
void check_thread_counts(const HostKernels& kernels, const std::vector<TileCase>& cases);
/// Rows that lie apart, aligned to an element alone, give the bits of packed ones, and nothing between them is written.
void check_spread_rows(const HostKernels& kernels, const std::vector<TileCase>& cases);
/// A NaN or infinity in one query, key, value or dO reaches exactly what sees it.
void check_reach_of_nan(const HostKernels& kernels);
/// Sums that round to the same side do so no more for many keys than for some.
void check_long_sums(const HostKernels& kernels);
/// Keys that have much in common: gradients cancel if both passes give the same weights.
void check_common_keys(const HostKernels& kernels);
/// Statistics carried from piece to piece of the keys are those of all at once, also where scores are in the hundreds.
void check_large_carries(const HostKernels& kernels);
/// Rows that see one key have its value and give it their dO, to the last bit, whatever the score and however many.
void check_lone_keys(const HostKernels& kernels);
/// The same of those whose weight is dropped or multiplied by what makes up for it: neither is rounded, nor are there
/// gradients.
void check_lone_dropped(const HostKernels& kernels);
/// Values and gradients near the smallest numbers, and below the smallest normal one.
void check_tiny_values(const HostKernels& kernels);
/// Halves below the smallest normal one.
void check_subnormal_halves(const HostKernels& kernels);
/// Queries without a key: (0, −∞), or the carry bit for bit; no gradient.
void check_empty_rows(const HostKernels& kernels);
/// A second call like the first allocates nothing, but `by_launch` times for each of its launches.
void check_allocations(const HostKernels& kernels, std::size_t by_launch = 0);
/// How often `call` allocates, on whatever threads.
std::size_t allocations_of(const std::function<void()>& call);

}  // namespace distattn::test

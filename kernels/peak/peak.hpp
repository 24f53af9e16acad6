#pragma once
/// What the cores at hand reach at most: multiply-adds on registers alone, and reading memory.

#include <cstddef>
#include <string>
#include <vector>

#include "distattn/types.hpp"
#include "kernels/team.hpp"

namespace distattn::kernels {

/// One instruction of this processor that multiplies and adds, and a loop of nothing else.
struct MultiplyAdd {
  std::string name;
  std::size_t flops;  ///< of one turn of the loop: all its independent sums
  void (*run)(long turns);
};

/// Those that multiply elements of `dtype`, and those that multiply what it converts to without loss: at least one.
std::vector<MultiplyAdd> multiply_adds(DType dtype);

/// FLOP/s of all threads together in `instruction`'s loop, for about `seconds`.
double rate_of(const MultiplyAdd& instruction, Team& team, double seconds);

/// Bytes a second that all threads together read from memory behind the caches; best of a few readings.
double read_rate(Team& team);

}  // namespace distattn::kernels

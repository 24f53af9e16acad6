#pragma once
/// Running small kernels that are right or faulty, and what the emulator says of them.

#include <algorithm>
#include <string>
#include <vector>

#include "simt/array.hpp"
#include "simt/machine.hpp"

namespace simt {

inline constexpr std::uint64_t seeds = 40;

/// Launches one block under many seeds and counts those that throw or leave another result than `want`.
template <class Kernel, class T>
std::uint64_t faulty_seeds(Kernel kernel, unsigned threads, const std::vector<T>& want,
                           std::size_t shared_bytes = 4096) {
  std::uint64_t faulty = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Array<T> out(want.size());
    try {
      simt::launch(kernel, {1, threads, shared_bytes, seed}, out.data());
      if (!std::equal(want.begin(), want.end(), out.data())) ++faulty;
    } catch (const simt::Error&) {
      ++faulty;
    }
  }
  return faulty;
}

template <class Kernel>
std::string message_of(Kernel kernel, unsigned threads, std::uint64_t seed = 0, std::size_t shared_bytes = 4096) {
  try {
    simt::launch(kernel, {1, threads, shared_bytes, seed});
  } catch (const simt::Error& error) {
    return error.what();
  }
  return "";
}

inline bool mentions(const std::string& message, const char* words) { return message.find(words) != std::string::npos; }

}  // namespace simt

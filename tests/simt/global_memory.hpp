#pragma once
/// Global memory as kernels may see it: exact bounds, and no word shared by threads that nothing orders.

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "simt/error.hpp"

namespace simt {

/// Who touches memory: blocks of one launch run in any order, so another block's write is always a race.
struct Toucher {
  std::uint32_t launch = 0, block = 0, thread = 0;
  friend bool operator==(const Toucher&, const Toucher&) = default;
};

enum class Access : std::uint8_t { none, read, write, atomic };

/// All arrays that kernels may touch. Thread-safe.
class GlobalMemory {
 public:
  void add(const void* begin, std::size_t bytes);
  void remove(const void* begin) noexcept;
  /// Whether `at` lies in one of them.
  bool has(const void* at);
  /// Throws Error when the bytes lie outside every array, or another thread of this launch has written them
  /// (or read them, if this is a write), atomics among themselves excepted.
  void touch(const void* begin, std::size_t bytes, Access access, const Toucher& who, const char* what);

 private:
  struct Cell {
    Toucher who;
    Access access = Access::none;
    bool several = false;  // threads that read it
  };
  struct Array {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    std::vector<Cell> cells;
  };
  Array& array_at(std::uintptr_t address, std::size_t bytes, const char* what);

  std::mutex mutex_;
  std::map<std::uintptr_t, Array> arrays_;
  Array* last_ = nullptr;  // touched
};

GlobalMemory& global_memory();

}  // namespace simt

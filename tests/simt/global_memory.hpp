#pragma once
/// Global memory as kernels may see it: exact bounds, and no word shared by threads that nothing orders.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
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

/// An array in global memory, in an allocation of exactly its size.
template <class T>
class Array {
 public:
  explicit Array(std::size_t count, T value = {}) : count_(count), data_(new T[count]) {
    std::fill_n(data_.get(), count, value);
    global_memory().add(data_.get(), count * sizeof(T));
  }
  explicit Array(std::span<const T> values) : Array(values.size()) {
    std::copy(values.begin(), values.end(), data_.get());
  }
  ~Array() { global_memory().remove(data_.get()); }
  Array(Array&& other) noexcept = default;
  Array& operator=(Array&&) = delete;

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::span<const T> values() const { return {data_.get(), count_}; }

 private:
  std::size_t count_;
  std::unique_ptr<T[]> data_;
};

}  // namespace simt

#pragma once
/// Arrays that kernels may touch.

#include <algorithm>
#include <memory>
#include <span>

#include "simt/place.hpp"

namespace simt {

/// An array in global memory, in an allocation of exactly its size.
template <class T>
class Array {
 public:
  explicit Array(std::size_t count, const T& value = {}) : count_(count), memory_(kernel_memory(count * sizeof(T))) {
    std::uninitialized_fill_n(data(), count, value);
  }
  explicit Array(std::span<const T> values) : Array(values.size()) { std::copy(values.begin(), values.end(), data()); }
  Array(Array&& other) noexcept = default;
  Array& operator=(Array&&) = delete;

  T* data() { return reinterpret_cast<T*>(memory_.get()); }
  const T* data() const { return reinterpret_cast<const T*>(memory_.get()); }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  std::span<const T> values() const { return {data(), count_}; }

 private:
  std::size_t count_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace simt

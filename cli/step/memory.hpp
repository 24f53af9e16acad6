#pragma once
/// Activations and where they live: every allocation is counted, so that reported bytes are those that were there.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <new>
#include <utility>

#include "distattn/index.hpp"
#include "kernels/dense/matrix.hpp"

namespace distattn::step {

using kernels::dense::Matrix;

/// 64-byte aligned blocks that are kept when given back, so that only the first step asks the system for memory.
class BlockPool {
 public:
  static constexpr std::size_t alignment = 64;

  BlockPool() = default;
  ~BlockPool() {
    for (const auto& [bytes, block] : free_) std::free(block);
  }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// `bytes` is a multiple of the alignment. Not initialised.
  void* take(std::size_t bytes) {
    if (const auto found = free_.find(bytes); found != free_.end()) {
      void* const block = found->second;
      free_.erase(found);
      return block;
    }
    void* const block = std::aligned_alloc(alignment, bytes);
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }
  void give_back(void* block, std::size_t bytes) { free_.emplace(bytes, block); }

 private:
  std::multimap<std::size_t, void*> free_;
};

/// Bytes that are in use now, and the most that ever were. One rank's, used by one thread.
class MemoryMeter {
 public:
  /// What is counted here is also counted in `total`. Both arguments must outlive this meter.
  explicit MemoryMeter(BlockPool& pool, MemoryMeter* total = nullptr) : pool_(&pool), total_(total) {}

  BlockPool& pool() const { return *pool_; }
  void add(std::size_t bytes) {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    if (total_ != nullptr) total_->add(bytes);
  }
  void remove(std::size_t bytes) {
    live_ -= bytes;
    if (total_ != nullptr) total_->remove(bytes);
  }
  std::size_t live() const { return live_; }
  std::size_t peak() const { return peak_; }
  void reset_peak() { peak_ = live_; }

 private:
  BlockPool* pool_;
  MemoryMeter* total_;
  std::size_t live_ = 0, peak_ = 0;
};

/// What a rank's activations occupy: those a policy keeps from forward to backward, those in use at the moment, and
/// those moved to the host.
struct ActivationMemory {
  BlockPool compute_blocks, host_blocks;
  MemoryMeter compute{compute_blocks};  ///< kept and working together
  MemoryMeter kept{compute_blocks, &compute};
  MemoryMeter working{compute_blocks, &compute};
  MemoryMeter host{host_blocks};

  void reset_peaks() {
    for (MemoryMeter* meter : {&compute, &kept, &working, &host}) meter->reset_peak();
  }
};

/// A matrix that owns a block, not initialised, and is charged to one meter. Move-only; an empty one is an activation
/// that is not there.
template <class T>
class Tensor {
 public:
  Tensor() = default;
  Tensor(MemoryMeter& meter, std::int64_t rows, std::int64_t cols) : meter_(&meter), matrix_{nullptr, rows, cols} {
    matrix_.data = static_cast<T*>(meter.pool().take(bytes()));
    meter_->add(bytes());
  }
  ~Tensor() { reset(); }
  Tensor(Tensor&& other) noexcept
      : meter_(std::exchange(other.meter_, nullptr)), matrix_(std::exchange(other.matrix_, {})) {}
  Tensor& operator=(Tensor&& other) noexcept {
    if (this != &other) {
      reset();
      meter_ = std::exchange(other.meter_, nullptr);
      matrix_ = std::exchange(other.matrix_, {});
    }
    return *this;
  }

  explicit operator bool() const { return meter_ != nullptr; }
  operator Matrix<T>() { return matrix_; }
  operator Matrix<const T>() const { return matrix_; }
  T* data() const { return matrix_.data; }
  std::int64_t rows() const { return matrix_.rows; }
  std::int64_t cols() const { return matrix_.cols; }

  void reset() {
    if (meter_ == nullptr) return;
    meter_->remove(bytes());
    meter_->pool().give_back(matrix_.data, bytes());
    meter_ = nullptr;
    matrix_ = {};
  }
  /// The same block, counted by another meter of its pool from now on.
  void charge(MemoryMeter& meter) {
    meter_->remove(bytes());
    meter_ = &meter;
    meter_->add(bytes());
  }
  /// A copy in other memory; this one is given up.
  Tensor moved_to(MemoryMeter& meter) {
    Tensor copy(meter, rows(), cols());
    std::copy_n(matrix_.data, matrix_.size(), copy.matrix_.data);
    reset();
    return copy;
  }

 private:
  std::size_t bytes() const {
    const std::size_t unit = BlockPool::alignment, count = index(matrix_.size()) * sizeof(T);
    return std::max(unit, (count + unit - 1) / unit * unit);
  }

  MemoryMeter* meter_ = nullptr;
  Matrix<T> matrix_;
};

}  // namespace distattn::step

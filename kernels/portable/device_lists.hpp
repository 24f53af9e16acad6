#pragma once
/// What kernels of a device read beside tensors: lists of operations and of their blocks, which lie in its memory.

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/portable/plan.hpp"

namespace distattn::kernels::portable {

/// One launch over blocks of queries: pointers into a device's memory.
template <class Args>
struct RowList {
  const Args* operations = nullptr;
  const TileSizes* sizes = nullptr;  ///< by operation
  const Item* items = nullptr;
  std::int64_t count = 0;         ///< of items
  std::size_t scratch_bytes = 0;  ///< of a team
  DType sums = DType::fp32;
};

/// One launch over blocks of keys, likewise.
struct ColumnList {
  std::span<const AttendBackwardArgs> operations;
  const KeyPlan::Column* columns = nullptr;
  const Contribution* contributions = nullptr;
  const Item* items = nullptr;
  std::int64_t count = 0;
  std::size_t scratch_bytes = 0;
  DType sums = DType::fp32;
};

/// Puts the lists of any number of launches into one piece of memory.
class ListPacker {
 public:
  static constexpr std::size_t alignment = 64;

  /// `base`: where bytes() will lie on the device, aligned; null: the lists only count. Tiles are small where a team's
  /// scratch memory then has at most `fast_bytes`, and large otherwise. `dropout` lies on the device: what operations
  /// that drop weights look at.
  ListPacker(const std::byte* base, std::size_t fast_bytes, const Dropout* dropout)
      : base_(base), fast_bytes_(fast_bytes), dropout_(dropout) {}

  RowList<AttendArgs> attend(std::span<const AttendArgs> operations);
  RowList<AttendBackwardArgs> query_gradients(std::span<const AttendBackwardArgs> operations);
  ColumnList key_gradients(std::span<const AttendBackwardArgs> operations);

  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <class T>
  const T* put(std::span<const T> values);
  template <class Args>
  std::span<const Args> put_operations(std::span<const Args> operations);
  template <class Args, class BytesOf>
  RowList<Args> rows(std::span<const Args> operations, BytesOf bytes_of);

  const std::byte* const base_;
  const std::size_t fast_bytes_;
  const Dropout* const dropout_;
  std::vector<std::byte> bytes_;
};

}  // namespace distattn::kernels::portable

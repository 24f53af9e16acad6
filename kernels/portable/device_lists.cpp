#include "kernels/portable/device_lists.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/element.hpp"
#include "kernels/portable/attend.hpp"
#include "kernels/portable/query_gradients.hpp"

namespace distattn::kernels::portable {

namespace {

/// Teams of small tiles, if they fit into fast memory, or of large ones: bytes_with(largest) plans and counts.
template <class BytesWith>
std::size_t fit(std::size_t fast_bytes, BytesWith bytes_with) {
  constexpr int small_tile = 32;
  const std::size_t bytes = bytes_with(small_tile);
  return bytes <= fast_bytes ? bytes : bytes_with(largest_tile);
}

template <template <class> class Scratch>
std::size_t bytes_of(const TileSizes& sizes, DType sums) {
  return with_accumulator(sums, [&]<class Real>(Real) { return Scratch<Real>(nullptr, sizes).bytes; });
}

}  // namespace

template <class T>
const T* ListPacker::put(std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= alignment);
  const std::size_t at = (bytes_.size() + alignment - 1) / alignment * alignment;
  bytes_.resize(at + values.size_bytes());
  if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size_bytes());
  return base_ == nullptr ? nullptr : reinterpret_cast<const T*>(base_ + at);
}

template <class Args>
std::span<const Args> ListPacker::put_operations(std::span<const Args> operations) {
  std::vector<Args> there(operations.begin(), operations.end());
  for (Args& args : there) {
    TileShape& shape = args.shape;
    if (shape.alibi_slopes != nullptr) {
      shape.alibi_slopes = put(std::span(shape.alibi_slopes, static_cast<std::size_t>(shape.heads.q_count)));
    }
    if (shape.dropout != nullptr) shape.dropout = dropout_;
    std::vector<KeySide> sides(args.keys.begin(), args.keys.end());
    for (KeySide& side : sides) side.bands = {put(side.bands), side.bands.size()};
    args.keys = {put(std::span<const KeySide>(sides)), sides.size()};
  }
  return {put(std::span<const Args>(there)), there.size()};
}

template <class Args, class BytesOf>
RowList<Args> ListPacker::rows(std::span<const Args> operations, BytesOf bytes_of) {
  RowPlan plan;
  RowList<Args> list;
  list.sums = accumulator_of(operations.front().shape.dtype);
  list.scratch_bytes = fit(fast_bytes_, [&](int largest) {
    plan.make(operations, largest);
    std::size_t bytes = 0;
    for (const TileSizes& sizes : plan.sizes) bytes = std::max(bytes, bytes_of(sizes, list.sums));
    return bytes;
  });
  list.operations = put_operations(operations).data();
  list.sizes = put(std::span<const TileSizes>(plan.sizes));
  list.items = put(std::span<const Item>(plan.items));
  list.count = std::ssize(plan.items);
  return list;
}

RowList<AttendArgs> ListPacker::attend(std::span<const AttendArgs> operations) {
  return rows(operations, bytes_of<AttendScratch>);
}

RowList<AttendBackwardArgs> ListPacker::query_gradients(std::span<const AttendBackwardArgs> operations) {
  return rows(operations, bytes_of<QueryGradientScratch>);
}

ColumnList ListPacker::key_gradients(std::span<const AttendBackwardArgs> operations) {
  KeyPlan plan;
  ColumnList list;
  list.sums = accumulator_of(operations.front().shape.dtype);
  list.scratch_bytes = fit(fast_bytes_, [&](int largest) {
    plan.make(operations, largest);
    std::size_t bytes = 0;
    for (const auto& column : plan.columns) {
      bytes = std::max(bytes, bytes_of<KeyGradientScratch>(column.sizes, list.sums));
    }
    return bytes;
  });
  list.operations = put_operations(operations);
  list.columns = put(std::span<const KeyPlan::Column>(plan.columns));
  list.contributions = put(std::span<const Contribution>(plan.contributions));
  list.items = put(std::span<const Item>(plan.items));
  list.count = std::ssize(plan.items);
  return list;
}

}  // namespace distattn::kernels::portable

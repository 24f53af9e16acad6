#include "cli/run/narrowing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "cli/run/all_gather.hpp"
#include "cli/terminal/console.hpp"
#include "distattn/convert.hpp"
#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

/// What a type holds, to the nearest.
struct Range {
  double to_infinity;  ///< from here on values round to infinity
  double to_zero;      ///< up to here they round to zero
  double largest, least;
};

Range range_of(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return {65520, 0x1p-25, 65504, 0x1p-24};
    case DType::bf16:
      return {0x1.ffp127, 0x1p-134, 0x1.fep127, 0x1p-133};
    case DType::fp32:
      return {0x1.ffffffp127, 0x1p-150, 0x1.fffffep127, 0x1p-149};
    case DType::fp64:
      break;
  }
  constexpr double none = std::numeric_limits<double>::infinity();
  return {none, 0, none, 0};
}

/// Where an element lies.
struct Element {
  std::int64_t b = 0, token = 0, head = 0, x = 0;
  auto order() const { return std::tie(b, token, head, x); }
};

/// Elements with one fate, and the first of them.
struct Lost {
  std::int64_t count = 0;
  Element first{};
  double value = 0;

  void add(const Lost& other) {
    if (other.count > 0 && (count == 0 || other.first.order() < first.order())) {
      first = other.first;
      value = other.value;
    }
    count += other.count;
  }
};
struct Losses {
  Lost to_infinity, to_zero;
};

/// Of one token.
void look_at(const ConstTensorView& view, std::int64_t b, std::int64_t token, const Range& range, Losses& losses) {
  const auto element_bytes = static_cast<std::int64_t>(size_of(view.dtype));
  for (std::int64_t head = 0; head < view.heads(); ++head) {
    const std::byte* const row = view.row(b, token, head);
    for (std::int64_t x = 0; x < view.head_dim(); ++x) {
      double value = 0;
      convert(row + x * view.strides[3] * element_bytes, view.dtype, reinterpret_cast<std::byte*>(&value), DType::fp64,
              1);
      const double size = std::abs(value);
      if (size >= range.to_infinity && std::isfinite(size)) losses.to_infinity.add({1, {b, token, head, x}, value});
      if (size <= range.to_zero && size > 0) losses.to_zero.add({1, {b, token, head, x}, value});
    }
  }
}

Losses losses_here(const World& world, const Sharding& sharding, const Inputs& inputs, Tensor tensor) {
  Losses losses;
  const StoredArray* const array = inputs.stored(tensor);
  if (array == nullptr) return losses;
  const ConstTensorView view = array->tensor();
  const Range range = range_of(sharding.problem.dtype), own = range_of(view.dtype);
  if (own.largest <= range.largest && own.least >= range.least) return losses;
  const bool queries = tensor == Tensor::q || tensor == Tensor::d_o;
  const std::int64_t first = queries ? sharding.problem.first_query() : 0;
  const int ranks_here = world.in_process() ? world.size() : 1;
  for (Rank rank = world.first(); rank < world.first() + ranks_here; ++rank) {
    for (const std::int64_t position : positions(queries ? sharding.queries : sharding.keys, rank)) {
      for (std::int64_t b = 0; b < view.batch(); ++b) look_at(view, b, position - first, range, losses);
    }
  }
  return losses;
}

/// "k.npy[2, 0, 3] is 70000", with as many indices as the array has.
std::string text_of(const StoredArray& array, const Lost& lost) {
  const std::array<std::int64_t, 4> place{lost.first.b, lost.first.token, lost.first.head, lost.first.x};
  return fmt::format("{}[{}] is {:.7g}", array.origin(),
                     fmt::join(place.begin() + (array.has_batch() ? 0 : 1), place.end(), ", "), lost.value);
}

std::string others_of(const Lost& lost) { return lost.count == 1 ? "" : fmt::format(", and {} more", lost.count - 1); }

}  // namespace

void check_values(World& world, const Sharding& sharding, const Inputs& inputs, Passes passes) {
  constexpr std::array tensors = {Tensor::q, Tensor::k, Tensor::v, Tensor::d_o};
  std::array<Losses, tensors.size()> mine;
  for (std::size_t t = 0; t < (passes == Passes::both ? tensors.size() : tensors.size() - 1); ++t) {
    mine[t] = losses_here(world, sharding, inputs, tensors[t]);
  }
  const auto all = all_gather<Losses>(world, mine);
  std::array<Losses, tensors.size()> sums;
  for (std::size_t i = 0; i < all.size(); ++i) {
    sums[i % sums.size()].to_infinity.add(all[i].to_infinity);
    sums[i % sums.size()].to_zero.add(all[i].to_zero);
  }
  const DType dtype = sharding.problem.dtype;
  const Range range = range_of(dtype);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Lost& lost = sums[t].to_infinity;
    if (lost.count == 0) continue;
    refuse(fmt::format(
        "{}{} ({} ends at {:.6g}): {}", text_of(*inputs.stored(tensors[t]), lost), others_of(lost), name_of(dtype),
        range.largest,
        dtype == DType::fp16 ? "give --dtype bf16 or fp32" : "divide by a power of 2, or compute in a wider type"));
  }
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Lost& lost = sums[t].to_zero;
    if (lost.count == 0) continue;
    note(fmt::format("{}{}: 0 in {} (its smallest value is {:.2g})", text_of(*inputs.stored(tensors[t]), lost),
                     others_of(lost), name_of(dtype), range.least));
  }
}

}  // namespace distattn::cli

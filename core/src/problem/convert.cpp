#include "distattn/convert.hpp"

#include <cstring>

#include <fmt/core.h>

#include "distattn/error.hpp"
#include "distattn/float16.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

double widen(double value) { return value; }
float widen(float value) { return value; }
float widen(Bf16 value) { return bf16_to_float(value.bits); }
float widen(Fp16 value) { return fp16_to_float(value.bits); }

/// What 16 bits are rounded from.
float single(float value) { return value; }
float single(double value) { return round_to_odd(value); }

template <class Element, class Value>
Element narrow(Value value) {
  if constexpr (std::is_same_v<Element, Bf16>)
    return {float_to_bf16(single(value))};
  else if constexpr (std::is_same_v<Element, Fp16>)
    return {float_to_fp16(single(value))};
  else
    return static_cast<Element>(value);
}

template <class Visit>
void with_element(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::fp64:
      return visit(double{});
    case DType::fp32:
      return visit(float{});
    case DType::bf16:
      return visit(Bf16{});
    case DType::fp16:
      return visit(Fp16{});
  }
  DISTATTN_EXPECT(!"a known element type");
}

/// The rows of one token, in every batch and head.
void copy_token(const ConstTensorView& from, std::int64_t from_token, const TensorView& into, std::int64_t into_token) {
  const std::int64_t dim = from.head_dim();
  const bool dense = from.strides[3] == 1 && into.strides[3] == 1;
  const std::int64_t from_step = from.strides[3] * static_cast<std::int64_t>(size_of(from.dtype));
  const std::int64_t into_step = into.strides[3] * static_cast<std::int64_t>(size_of(into.dtype));
  for (std::int64_t b = 0; b < from.batch(); ++b) {
    for (std::int64_t h = 0; h < from.heads(); ++h) {
      const std::byte* const source = from.row(b, from_token, h);
      std::byte* const target = into.row(b, into_token, h);
      if (dense) {
        convert(source, from.dtype, target, into.dtype, dim);
        continue;
      }
      for (std::int64_t x = 0; x < dim; ++x) {
        convert(source + x * from_step, from.dtype, target + x * into_step, into.dtype, 1);
      }
    }
  }
}

/// Batch, heads and head dimension are the same, both lie in host memory, and every token of the rank has its place.
void check_shapes(const ConstTensorView& whole, std::int64_t first, std::span<const Segment> segments, Rank rank,
                  const ConstTensorView& local) {
  if (whole.batch() != local.batch() || whole.heads() != local.heads() || whole.head_dim() != local.head_dim()) {
    refuse(
        fmt::format("a whole tensor of batch {}, {} heads of {} and a rank's of batch {}, {} heads of {} (they differ "
                    "in tokens alone): make them alike",
                    whole.batch(), whole.heads(), whole.head_dim(), local.batch(), local.heads(), local.head_dim()));
  }
  if (whole.space != MemorySpace::host || local.space != MemorySpace::host)
    refuse("a tensor in a device's memory (tokens are copied between tensors of the host): copy it there first");
  std::int64_t tokens = 0;
  for (const Segment& segment : segments) {
    if (segment.owner != rank || segment.run.count <= 0) continue;
    tokens += segment.run.count;
    const std::int64_t begin = segment.run.start - first, last = segment.run.at(segment.run.count - 1) - first;
    if (begin < 0 || last >= whole.sequence())
      refuse(fmt::format("tokens {} to {} of a tensor of {} (the rank owns them): give the whole tensor", begin, last,
                         whole.sequence()));
  }
  if (tokens > local.sequence())
    refuse(fmt::format("a rank's tensor of {} tokens (it owns {}): make it larger", local.sequence(), tokens));
}

/// Calls visit(index in the whole tensor, index in the rank's) for every token that `rank` owns.
template <class Visit>
void for_each_token(std::span<const Segment> segments, Rank rank, std::int64_t first, Visit visit) {
  std::int64_t token = 0;
  for (const Segment& segment : segments) {
    if (segment.owner != rank) continue;
    for (std::int64_t i = 0; i < segment.run.count; ++i, ++token) visit(segment.run.at(i) - first, token);
  }
}

}  // namespace

void convert(const std::byte* from, DType from_dtype, std::byte* into, DType into_dtype, std::int64_t count) {
  if (from_dtype == into_dtype) {
    if (count > 0) std::memcpy(into, from, index(count) * size_of(into_dtype));
    return;
  }
  with_element(from_dtype, [&]<class From>(From) {
    with_element(into_dtype, [&]<class Into>(Into) {
      const auto* const source = reinterpret_cast<const From*>(from);
      auto* const target = reinterpret_cast<Into*>(into);
      for (std::int64_t i = 0; i < count; ++i) target[i] = narrow<Into>(widen(source[i]));
    });
  });
}

void extract_shard(const ConstTensorView& whole, std::int64_t first, std::span<const Segment> segments, Rank rank,
                   const TensorView& local) {
  check_shapes(whole, first, segments, rank, local);
  for_each_token(segments, rank, first,
                 [&](std::int64_t index, std::int64_t token) { copy_token(whole, index, local, token); });
}

void insert_shard(const ConstTensorView& local, std::span<const Segment> segments, Rank rank, std::int64_t first,
                  const TensorView& whole) {
  check_shapes(whole, first, segments, rank, local);
  for_each_token(segments, rank, first,
                 [&](std::int64_t index, std::int64_t token) { copy_token(local, token, whole, index); });
}

}  // namespace distattn

#include "backends/host/caches.hpp"

#include "backends/batches.hpp"
#include "distattn/index.hpp"

namespace distattn::backends {
namespace {

using Strides = std::array<std::int64_t, 4>;

/// Of [batch][head][token][dim], in a tensor and in an array without gaps.
Strides tensor_strides(const Strides& strides) { return {strides[0], strides[2], strides[1], strides[3]}; }
Strides packed(const Strides& shape) { return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}; }

/// A tensor's rows, of which `other` is the packed side.
template <class View>
kernels::RearrangeArgs rows_of(const View& tensor) {
  kernels::RearrangeArgs args;
  args.shape = {1, tensor.shape[2], tensor.shape[1], tensor.shape[3]};
  return args;
}

kernels::RearrangeArgs unpacking(const TensorView& tensor, const void* from, DType dtype) {
  kernels::RearrangeArgs args = rows_of(tensor);
  args.into_dtype = tensor.dtype;
  args.into = tensor.data;
  args.into_strides = tensor_strides(tensor.strides);
  args.from_dtype = dtype;
  args.from = from;
  args.from_strides = packed(args.shape);
  return args;
}

/// A cache's rows: its pages are what batches are elsewhere.
kernels::ConstRows rows_of_cache(const ConstTensorView& cache) {
  return {cache.data, {cache.strides[0], cache.strides[2], cache.strides[1]}};
}

}  // namespace

void Caches::pack(const Problem& problem, std::span<const CacheRows> operations) {
  moves_.clear();
  for (const CacheRows& op : operations) {
    kernels::RearrangeArgs args = rows_of(op.tensor);
    args.into_dtype = problem.dtype;
    args.into = op.packed;
    args.into_strides = packed(args.shape);
    args.from_dtype = op.tensor.dtype;
    args.from = op.tensor.data;
    args.from_strides = tensor_strides(op.tensor.strides);
    moves_.push_back(args);
  }
  workers_.rearrange(moves_);
  workers_.throw_if_ended();
}

void Caches::read(const Problem& problem, std::span<const CacheRead> operations) {
  const kernels::TileShape shape = shape_of(problem);
  sides_.resize(operations.size());
  reads_.resize(operations.size());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const CacheRead& op = operations[i];
    sides_[i] = {.k = rows_of_cache(op.k), .v = rows_of_cache(op.v), .keys = {0, op.keys, 1}, .bands = op.bands};
    if (!op.pages.empty()) sides_[i].pages = {op.pages.data(), static_cast<std::int32_t>(op.k.sequence())};
    reads_[i] = {
        .shape = shape,
        .q = kernels::packed_rows(static_cast<const void*>(op.q), problem.heads, op.queries.count, problem.head_dim),
        .queries = op.queries,
        .keys = {&sides_[i], 1},
        .o = kernels::packed_rows(static_cast<void*>(op.into.o), problem.heads, op.queries.count, problem.value_dim),
        .lse = op.into.lse,
        .lse_low = op.into.lse_low};
  }
  workers_.compute(reads_);
  workers_.throw_if_ended();
}

void Caches::merge(const Problem& problem, const CachePartial& into, const CachePartial& from) {
  const DType real = problem.accumulator();
  const kernels::MergeArgs args{real, into.rows, problem.value_dim, into.o,      into.lse, into.lse_low,
                                real, from.o,    from.lse,          from.lse_low};
  workers_.compute(std::span(&args, 1));
  workers_.throw_if_ended();
}

void Caches::merge_sinks(const Problem& problem, const ConstTensorView& sink_logits,
                         std::span<const CacheResult> operations) {
  const DType real = problem.accumulator();
  logits_.resize(index(problem.heads));  // room for any type
  kernels::RearrangeArgs args = rows_of(sink_logits);
  args.into_dtype = real;
  args.into = logits_.data();
  args.into_strides = packed(args.shape);
  args.from_dtype = sink_logits.dtype;
  args.from = sink_logits.data;
  args.from_strides = tensor_strides(sink_logits.strides);
  workers_.rearrange({&args, 1});
  sinks_.clear();
  for (const CacheResult& op : operations) {
    const std::int64_t tokens = op.o.sequence();
    sinks_.push_back(
        {.accumulator = real,
         .tokens = tokens,
         .heads = problem.heads,
         .dim = problem.value_dim,
         .logits = logits_.data(),
         .o = kernels::packed_rows(static_cast<void*>(op.from.o), problem.heads, tokens, problem.value_dim),
         .lse = op.from.lse,
         .lse_low = op.from.lse_low});
  }
  workers_.merge_sinks(sinks_);
}

void Caches::unpack(const Problem& problem, const ConstTensorView& sink_logits,
                    std::span<const CacheResult> operations) {
  if (problem.scores.sink_logits) merge_sinks(problem, sink_logits, operations);
  moves_.clear();
  for (const CacheResult& op : operations) {
    moves_.push_back(unpacking(op.o, op.from.o, problem.accumulator()));
    if (op.lse.data != nullptr) moves_.push_back(unpacking(op.lse, op.from.lse, problem.accumulator()));
    if (op.lse_low.data != nullptr) moves_.push_back(unpacking(op.lse_low, op.from.lse_low, DType::fp16));
  }
  workers_.rearrange(moves_);
  workers_.throw_if_ended();
}

}  // namespace distattn::backends

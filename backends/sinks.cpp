#include "backends/sinks.hpp"

#include "distattn/index.hpp"

namespace distattn::backends {
namespace {

/// Numbers of heads as one side of a rearrangement.
kernels::RearrangeArgs of_heads(std::int64_t heads) {
  kernels::RearrangeArgs args;
  args.shape = {1, 1, heads, 1};
  return args;
}

}  // namespace

Sinks::Sinks(const BufferTable& buffers, const std::function<std::shared_ptr<std::byte>(std::size_t bytes)>& allocate)
    : pass_(buffers.outline().pass),
      dtype_(buffers.outline().sharding.problem.accumulator()),
      heads_(buffers.outline().sharding.problem.heads),
      memory_(allocate(2 * index(heads_) * size_of(dtype_))) {
  const Outline& outline = buffers.outline();
  for (std::size_t i = 0; i < buffers.program().buffers.size(); ++i) {
    const auto buffer = static_cast<BufferId>(i);
    const Value& value = buffers.decl(buffer).value;
    if (is_key_side(value.kind) || buffers.parts(buffer)[0].shape.tokens == 0) continue;
    if (outline.sharding.queries[index(value.segment)].owner != buffers.rank()) continue;
    if (value.kind == ValueKind::output && value.contributor == buffers.rank()) add_outputs(buffers, buffer);
    if (is_input(value.kind) && outline.pass == Pass::backward) add_queries(buffers, buffer);
  }
  if (outline.pass == Pass::forward) return;
  differentials_.push_back(
      {dtype_, static_cast<int>(heads_), memory_.get(), number_of(memory_.get(), heads_), std::span(rows_)});
}

void* Sinks::number_of(std::byte* first, std::int64_t head) const {
  return first + head * static_cast<std::int64_t>(size_of(dtype_));
}

void Sinks::add_outputs(const BufferTable& buffers, BufferId buffer) {
  const auto parts = buffers.parts(buffer);
  const Sharding& sharding = buffers.outline().sharding;
  const PartShape& o = parts[0].shape;
  const HeadGroup& group = sharding.groups[index(buffers.decl(buffer).value.group)];
  DISTATTN_EXPECT(o.dtype == dtype_);
  outputs_.push_back(buffer);
  merges_.push_back(
      {.accumulator = dtype_,
       .batch = sharding.problem.batch,
       .tokens = o.tokens,
       .heads = o.heads,
       .dim = o.dim,
       .logits = number_of(memory_.get(), group.q0),
       .o = kernels::packed_rows(static_cast<void*>(parts[0].data), o.heads, o.tokens, o.dim),
       .lse = parts[1].data,
       .lse_low = sharding.problem.has_low_lse() ? reinterpret_cast<std::uint16_t*>(parts[2].data) : nullptr});
}

/// Parts of queries: q, dO, lse, delta, shared, lse_low.
void Sinks::add_queries(const BufferTable& buffers, BufferId buffer) {
  const auto parts = buffers.parts(buffer);
  const Sharding& sharding = buffers.outline().sharding;
  const PartShape& lse = parts[2].shape;
  const HeadGroup& group = sharding.groups[index(buffers.decl(buffer).value.group)];
  rows_.push_back(
      {.batch = sharding.problem.batch,
       .tokens = lse.tokens,
       .first_head = group.q0,
       .heads = lse.heads,
       .lse = parts[2].data,
       .lse_low = sharding.problem.sends_low_lse() ? reinterpret_cast<const std::uint16_t*>(parts[5].data) : nullptr,
       .delta = parts[3].data});
}

void Sinks::load(const Bindings& bindings, StagingKernels& kernels) {
  const ConstTensorView& logits = bindings.sink_logits;
  kernels::RearrangeArgs args = of_heads(heads_);
  args.into_dtype = dtype_;
  args.into = memory_.get();
  args.from_dtype = logits.dtype;
  args.from = logits.data;
  args.into_strides = {heads_, heads_, 1, 1};
  args.from_strides = {0, 0, logits.strides[2], 1};
  kernels.rearrange({&args, 1});
  kernels.differentiate_sinks(differentials_);
}

void Sinks::store(const Bindings& bindings, const Placement* placement, StagingKernels& kernels) {
  if (pass_ == Pass::forward) {
    for (std::size_t i = 0; placement != nullptr && i < merges_.size(); ++i) {
      merges_[i].o = placement->rows(outputs_[i], 0);
    }
    return kernels.merge_sinks(merges_);
  }
  const TensorView& gradients = bindings.dsink_logits;
  kernels::RearrangeArgs args = of_heads(heads_);
  args.into_dtype = gradients.dtype;
  args.into = gradients.data;
  args.into_strides = {0, 0, gradients.strides[2], 1};
  args.from_dtype = dtype_;
  args.from = number_of(memory_.get(), heads_);
  args.from_strides = {heads_, heads_, 1, 1};
  kernels.rearrange({&args, 1});
}

}  // namespace distattn::backends

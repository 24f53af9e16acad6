#include "backends/cudnn/gradients.hpp"

#include <algorithm>

#include "distattn/index.hpp"

namespace distattn::backends::cudnn {
namespace {

/// A gradient in fp32, and whether something is in it already.
struct Sum {
  float* data = nullptr;
  std::int64_t count = 0;
  bool carry = false;
};

class CudnnGradients final : public cuda::PreparedAttend {
 public:
  CudnnGradients(const Gpu& gpu, const kernels::AttendBackwardArgs& args, std::vector<GradientCall> calls)
      : gpu_(gpu),
        shape_(args.shape),
        rows_(args.shape.batch * args.shape.heads.q_count * args.queries.count),
        d_o_(kernels::packed_data(args.d_o, shape_.heads.q_count, args.queries.count, shape_.value_dim)),
        delta_(static_cast<const float*>(args.delta)),
        dq_(sum_of(args.dq, shape_.heads.q_count, args.queries.count, shape_.head_dim, args.carry)),
        calls_(std::move(calls)) {
    std::int64_t keys = 0, values = 0;
    for (const kernels::KeySide& side : args.keys) {
      dk_.push_back(sum_of(side.dk, shape_.heads.kv_count, side.keys.count, shape_.head_dim, side.carry));
      dv_.push_back(sum_of(side.dv, shape_.heads.kv_count, side.keys.count, shape_.value_dim, side.carry));
      keys = std::max(keys, dk_.back().count);
      values = std::max(values, dv_.back().count);
    }
    std::size_t workspace_bytes = 0;
    for (const GradientCall& call : calls_) workspace_bytes = std::max(workspace_bytes, call.plan->workspace_bytes());
    o_at_ = take(rows_ * shape_.value_dim, shape_.dtype);
    dq_at_ = take(dq_.count, shape_.dtype);
    dk_at_ = take(keys, shape_.dtype);
    dv_at_ = take(values, shape_.dtype);
    delta_at_ = take(rows_, DType::fp32);
    dq_sum_at_ = take(dq_.count, DType::fp32);
    workspace_at_ = scratch_bytes_;
    scratch_bytes_ += workspace_bytes;
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }

  void start(cuda::Stream& stream, std::byte* scratch) const override {
    const Handle handle = gpu_.on(stream);
    gpu_.output_of_delta({.dtype = shape_.dtype,
                          .rows = rows_,
                          .dim = shape_.value_dim,
                          .d_o = d_o_,
                          .delta = delta_,
                          .o = scratch + o_at_},
                         stream);
    Sum dq = dq_;
    std::vector<Sum> dk = dk_, dv = dv_;
    for (const GradientCall& call : calls_) {
      Sum &dk_of_side = dk[call.side], &dv_of_side = dv[call.side];
      if (!call.all_rows) clear(scratch + dq_at_, dq.count, stream);
      if (!call.all_columns) {
        clear(scratch + dk_at_, dk_of_side.count, stream);
        clear(scratch + dv_at_, dv_of_side.count, stream);
      }
      call.plan->start(handle, placed(call, scratch), scratch + workspace_at_);
      add(scratch + dq_at_, dq, stream);
      add(scratch + dk_at_, dk_of_side, stream);
      add(scratch + dv_at_, dv_of_side, stream);
    }
    clear_unless_carried(dq, stream);
    for (const Sum& sum : dk) clear_unless_carried(sum, stream);
    for (const Sum& sum : dv) clear_unless_carried(sum, stream);
  }

 private:
  Sum sum_of(const kernels::Rows& rows, std::int64_t heads, std::int64_t tokens, std::int64_t dim, bool carry) const {
    return {static_cast<float*>(kernels::packed_data(rows, heads, tokens, dim)), shape_.batch * heads * tokens * dim,
            carry};
  }
  std::size_t take(std::int64_t count, DType dtype) {
    const std::size_t at = scratch_bytes_;
    scratch_bytes_ += aligned(index(count) * size_of(dtype));
    return at;
  }

  GradientOperands placed(const GradientCall& call, std::byte* scratch) const {
    const DType dtype = shape_.dtype;
    GradientOperands operands = call.operands;
    operands.o = advanced(scratch + o_at_, call.first_row * shape_.value_dim, dtype);
    operands.delta = reinterpret_cast<float*>(scratch + delta_at_);
    operands.dq_sum = reinterpret_cast<float*>(scratch + dq_sum_at_);
    operands.dq = advanced(scratch + dq_at_, call.first_row * shape_.head_dim, dtype);
    operands.dk = advanced(scratch + dk_at_, call.first_column * shape_.head_dim, dtype);
    operands.dv = advanced(scratch + dv_at_, call.first_column * shape_.value_dim, dtype);
    return operands;
  }

  void clear(std::byte* gradient, std::int64_t count, cuda::Stream& stream) const {
    stream.clear(gradient, index(count) * size_of(shape_.dtype));
  }
  void add(const std::byte* gradient, Sum& sum, const cuda::Stream& stream) const {
    if (sum.carry) {
      gpu_.accumulate({.count = sum.count, .into = sum.data, .from_dtype = shape_.dtype, .from = gradient}, stream);
    } else {
      gpu_.convert({.count = sum.count, .into = sum.data, .from_dtype = shape_.dtype, .from = gradient}, stream);
    }
    sum.carry = true;
  }
  static void clear_unless_carried(const Sum& sum, cuda::Stream& stream) {
    if (!sum.carry) stream.clear(sum.data, index(sum.count) * sizeof(float));
  }

  const Gpu& gpu_;
  const kernels::TileShape shape_;
  const std::int64_t rows_;
  const void* const d_o_;
  const float* const delta_;
  const Sum dq_;
  std::vector<Sum> dk_, dv_;  // by side
  const std::vector<GradientCall> calls_;
  std::size_t o_at_ = 0, dq_at_ = 0, dk_at_ = 0, dv_at_ = 0, delta_at_ = 0, dq_sum_at_ = 0, workspace_at_ = 0;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<cuda::PreparedAttend> prepare_gradients(const Gpu& gpu, const kernels::AttendBackwardArgs& args,
                                                        std::vector<GradientCall> calls) {
  return std::make_unique<CudnnGradients>(gpu, args, std::move(calls));
}

}  // namespace distattn::backends::cudnn

#include "backends/cudnn/attend.hpp"

#include <algorithm>
#include <limits>

#include "distattn/index.hpp"

namespace distattn::backends::cudnn {
namespace {

class CudnnAttend final : public cuda::PreparedAttend {
 public:
  CudnnAttend(const Gpu& gpu, const kernels::AttendArgs& args, std::vector<AttendCall> calls)
      : gpu_(gpu),
        dim_(args.shape.value_dim),
        rows_(args.shape.batch * args.shape.heads.q_count * args.queries.count),
        o_(static_cast<float*>(
            kernels::packed_data(args.o, args.shape.heads.q_count, args.queries.count, args.shape.value_dim))),
        lse_(static_cast<float*>(args.lse)),
        lse_low_(args.lse_low),
        carry_(args.carry),
        calls_(std::move(calls)),
        o_bytes_(aligned(index(rows_ * dim_) * sizeof(float))),
        lse_bytes_(aligned(index(rows_) * sizeof(float))) {
    for (const AttendCall& call : calls_) workspace_bytes_ = std::max(workspace_bytes_, call.plan->workspace_bytes());
  }

  std::size_t scratch_bytes() const override { return o_bytes_ + lse_bytes_ + workspace_bytes_; }

  void start(cuda::Stream& stream, std::byte* scratch) const override {
    const Handle handle = gpu_.on(stream);
    auto* const partial_o = reinterpret_cast<float*>(scratch);
    auto* const partial_lse = reinterpret_cast<float*>(scratch + o_bytes_);
    void* const workspace = scratch + o_bytes_ + lse_bytes_;
    const bool first_is_direct = !carry_ && !calls_.empty() && calls_.front().whole;
    if (!carry_ && !first_is_direct) {
      stream.clear(o_, index(rows_ * dim_) * sizeof(float));
      hide_all(lse_, stream);
    }
    if (!carry_ && lse_low_ != nullptr) stream.clear(lse_low_, index(rows_) * sizeof *lse_low_);
    for (const AttendCall& call : calls_) {
      const bool direct = first_is_direct && &call == &calls_.front();
      Operands operands = call.operands;
      operands.o = (direct ? o_ : partial_o) + call.first_row * dim_;
      operands.stats = (direct ? lse_ : partial_lse) + call.first_row;
      if (!direct) hide_all(partial_lse, stream);
      call.plan->start(handle, operands, workspace);
      if (direct) continue;
      gpu_.merge({.rows = rows_,
                  .dim = dim_,
                  .o = o_,
                  .lse = lse_,
                  .lse_low = lse_low_,
                  .from_o = partial_o,
                  .from_lse = partial_lse},
                 stream);
    }
  }

 private:
  void hide_all(float* lse, const cuda::Stream& stream) const {
    gpu_.fill(lse, rows_, -std::numeric_limits<float>::infinity(), stream);
  }

  const Gpu& gpu_;
  const int dim_;
  const std::int64_t rows_;
  float* const o_;
  float* const lse_;
  std::uint16_t* const lse_low_;
  const bool carry_;
  const std::vector<AttendCall> calls_;
  const std::size_t o_bytes_, lse_bytes_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<cuda::PreparedAttend> prepare_attend(const Gpu& gpu, const kernels::AttendArgs& args,
                                                     std::vector<AttendCall> calls) {
  return std::make_unique<CudnnAttend>(gpu, args, std::move(calls));
}

}  // namespace distattn::backends::cudnn

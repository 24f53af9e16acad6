#include "backends/cudnn/provider.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "backends/cudnn/graph.hpp"
#include "backends/cudnn/pieces.hpp"
#include "distattn/error.hpp"
#include "kernels/cuda/elementwise.hpp"

namespace distattn::backends::cudnn {
namespace {

constexpr std::size_t alignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

const void* advanced(const void* elements, std::int64_t count, DType dtype) {
  return static_cast<const std::byte*>(elements) + count * static_cast<std::int64_t>(size_of(dtype));
}

/// cuDNN on one GPU.
class Gpu {
 public:
  Gpu(const Library& library, cuda::Driver& driver)
      : library_(library), driver_(driver), stream_(driver.make_stream(cuda::StreamPriority::normal)) {
    select();
    load_kernels();
    library.check(library.create(&handle_), "start");
  }
  ~Gpu() {
    try {
      select();
    } catch (const Error&) {
      // the GPU is lost, and the handle with it
    }
    library_.destroy(handle_);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const Library& library() const { return library_; }
  const cuda::Driver& driver() const { return driver_; }
  /// cuDNN takes the GPU from the thread.
  void select() const { stream_->handle(); }
  Target target() const { return {.handle = handle_}; }
  Handle on(const cuda::Stream& stream) const {
    library_.check(library_.set_stream(handle_, stream.handle()), "take a stream");
    return handle_;
  }

 private:
  /// Those that stand around cuDNN's, before anything runs (backends/cuda/launches.cpp).
  void load_kernels() const {
    driver_.check(kernels::cuda::fill(nullptr, 0, 0, stream_->handle()), "load filling");
    driver_.check(kernels::cuda::merge({}, stream_->handle()), "load merging");
  }

  const Library& library_;
  cuda::Driver& driver_;
  const std::unique_ptr<cuda::Stream> stream_;
  Handle handle_ = nullptr;
};

class CudnnAttend final : public cuda::PreparedAttend {
 public:
  struct Call {
    std::shared_ptr<const AttendPlan> plan;
    Operands operands;  // results are added when it starts
    bool direct = false;
    std::int64_t first_row = 0;
  };

  CudnnAttend(const Gpu& gpu, const kernels::AttendArgs& args, std::vector<Call> calls)
      : gpu_(gpu),
        shape_(args.shape),
        o_(packed_data(args.o, args.shape.heads.q_count, args.queries.count, args.shape.value_dim)),
        lse_(args.lse),
        carry_(args.carry),
        calls_(std::move(calls)) {
    rows_ = shape_.batch * shape_.heads.q_count * args.queries.count;
    o_bytes_ = aligned(static_cast<std::size_t>(rows_ * shape_.value_dim) * sizeof(float));
    lse_bytes_ = aligned(static_cast<std::size_t>(rows_) * sizeof(float));
    for (const Call& call : calls_) workspace_bytes_ = std::max(workspace_bytes_, call.plan->workspace_bytes());
  }

  std::size_t scratch_bytes() const override { return o_bytes_ + lse_bytes_ + workspace_bytes_; }

  void start(cuda::Stream& stream, std::byte* scratch) const override {
    const Handle handle = gpu_.on(stream);
    if (!carry_ && (calls_.empty() || !calls_.front().direct)) {
      stream.clear(o_, static_cast<std::size_t>(rows_ * shape_.value_dim) * sizeof(float));
      hide_all(lse_, stream);
    }
    auto* const partial_o = reinterpret_cast<float*>(scratch);
    auto* const partial_lse = reinterpret_cast<float*>(scratch + o_bytes_);
    void* const workspace = scratch + o_bytes_ + lse_bytes_;
    for (const Call& call : calls_) {
      Operands operands = call.operands;
      auto* const o = call.direct ? static_cast<float*>(o_) : partial_o;
      auto* const lse = call.direct ? static_cast<float*>(lse_) : partial_lse;
      operands.o = o + call.first_row * shape_.value_dim;
      operands.stats = lse + call.first_row;
      if (!call.direct) hide_all(lse, stream);
      call.plan->start(handle, operands, workspace);
      if (!call.direct) merge(partial_o, partial_lse, stream);
    }
  }

 private:
  void hide_all(void* lse, const cuda::Stream& stream) const {
    constexpr float nothing = -std::numeric_limits<float>::infinity();
    gpu_.driver().check(kernels::cuda::fill(static_cast<float*>(lse), rows_, nothing, stream.handle()),
                        "start filling");
  }
  void merge(const float* from_o, const float* from_lse, const cuda::Stream& stream) const {
    const kernels::MergeArgs args{
        .rows = rows_, .dim = shape_.value_dim, .o = o_, .lse = lse_, .from_o = from_o, .from_lse = from_lse};
    gpu_.driver().check(kernels::cuda::merge(args, stream.handle()), "start merging");
  }

  const Gpu& gpu_;
  const kernels::TileShape shape_;
  void* const o_;
  void* const lse_;
  const bool carry_;
  const std::vector<Call> calls_;
  std::int64_t rows_ = 0;
  std::size_t o_bytes_ = 0, lse_bytes_ = 0, workspace_bytes_ = 0;
};

class CudnnProvider final : public cuda::AttendProvider {
 public:
  CudnnProvider(const Library& library, cuda::Driver& driver) : gpu_(library, driver) {}

  std::string why_not(const Problem& problem, Pass pass) const override {
    if (pass == Pass::backward) {
      return "cuDNN computes no gradients of tiles (its own are 16 bits wide and start from all of O) "
             "take provider own";
    }
    kernels::TileShape shape;
    shape.dtype = problem.dtype;
    shape.head_dim = problem.head_dim;
    shape.value_dim = problem.value_dim;
    return why_no_tile(shape);
  }

  std::unique_ptr<cuda::PreparedAttend> prepare(const kernels::AttendArgs& args) override {
    if (const std::string why = why_no_tile(args.shape); !why.empty()) refuse(why + " take provider own");
    std::vector<CudnnAttend::Call> calls;
    for (const kernels::KeySide& side : args.keys) {
      for (const Piece& piece : pieces_of(args.queries, side.keys, side.bands)) {
        if (const std::string why = why_no_piece(piece, gpu_.library().get_version()); !why.empty()) {
          refuse(why + " install a newer one, or take provider own");
        }
        const bool whole = piece.rows.begin == 0 && piece.rows.end == args.queries.count;
        calls.push_back({.plan = plan_for(args, side, piece),
                         .operands = operands_of(args, side, piece),
                         .direct = calls.empty() && !args.carry && whole,
                         .first_row = piece.rows.begin});
      }
    }
    return std::make_unique<CudnnAttend>(gpu_, args, std::move(calls));
  }

 private:
  static Operands operands_of(const kernels::AttendArgs& args, const kernels::KeySide& side, const Piece& piece) {
    const kernels::TileShape& shape = args.shape;
    const void* const q = packed_data(args.q, shape.heads.q_count, args.queries.count, shape.head_dim);
    const void* const k = packed_data(side.k, shape.heads.kv_count, side.keys.count, shape.head_dim);
    const void* const v = packed_data(side.v, shape.heads.kv_count, side.keys.count, shape.value_dim);
    return {.q = advanced(q, piece.rows.begin * shape.head_dim, shape.dtype),
            .k = advanced(k, piece.columns.begin * shape.head_dim, shape.dtype),
            .v = advanced(v, piece.columns.begin * shape.value_dim, shape.dtype),
            .scale = static_cast<float>(shape.scale)};
  }

  std::shared_ptr<const AttendPlan> plan_for(const kernels::AttendArgs& args, const kernels::KeySide& side,
                                             const Piece& piece) {
    const AttendShape shape{.dtype = args.shape.dtype,
                            .batch = args.shape.batch,
                            .heads = args.shape.heads.q_count,
                            .kv_heads = args.shape.heads.kv_count,
                            .rows = piece.rows.end - piece.rows.begin,
                            .columns = piece.columns.end - piece.columns.begin,
                            .q_tokens = args.queries.count,
                            .k_tokens = side.keys.count,
                            .head_dim = args.shape.head_dim,
                            .value_dim = args.shape.value_dim,
                            .left = piece.left,
                            .right = piece.right};
    std::shared_ptr<const AttendPlan>& plan = plans_[shape];
    if (plan == nullptr) {
      gpu_.select();
      plan = std::make_shared<const AttendPlan>(gpu_.library(), shape, gpu_.target());
    }
    return plan;
  }

  Gpu gpu_;
  std::map<AttendShape, std::shared_ptr<const AttendPlan>> plans_;
};

}  // namespace

std::unique_ptr<cuda::AttendProvider> make_provider(const Library& library, cuda::Driver& driver) {
  return std::make_unique<CudnnProvider>(library, driver);
}

}  // namespace distattn::backends::cudnn

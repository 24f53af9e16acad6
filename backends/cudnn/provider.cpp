#include "backends/cudnn/provider.hpp"

#include <map>

#include "backends/cudnn/attend.hpp"
#include "backends/cudnn/gradients.hpp"
#include "backends/cudnn/pieces.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::cudnn {
namespace {

constexpr Pass pass_of(const kernels::AttendArgs&) { return Pass::forward; }
constexpr Pass pass_of(const kernels::AttendBackwardArgs&) { return Pass::backward; }

class CudnnProvider final : public cuda::AttendProvider {
 public:
  CudnnProvider(const Library& library, cuda::Driver& driver)
      : architecture_(driver.capability().architecture), gpu_(library, driver) {}

  Features features(Pass) const override { return attend_features; }

  std::string why_not(const kernels::TileShape& shape, Pass pass) const override {
    const std::string why = why_no_tile(shape);
    if (!why.empty() || pass == Pass::forward) return why;
    return why_no_gradients(shape.head_dim, shape.value_dim, architecture_, gpu_.library().get_version());
  }

  std::unique_ptr<cuda::PreparedAttend> prepare(const kernels::AttendArgs& args) override {
    std::vector<AttendCall> calls;
    for_each_piece(args, [&](const kernels::KeySide& side, const Piece& piece) {
      const Inputs in = inputs_of(args, side, piece);
      calls.push_back({.plan = plan_for(args, side, piece),
                       .operands = {.q = in.q, .k = in.k, .v = in.v, .scores = args.shape.scores},
                       .whole = has_all(piece.rows, args.queries),
                       .first_row = piece.rows.begin});
    });
    return prepare_attend(gpu_, args, std::move(calls));
  }

  std::unique_ptr<cuda::PreparedAttend> prepare(const kernels::AttendBackwardArgs& args) override {
    std::vector<GradientCall> calls;
    for_each_piece(args, [&](const kernels::KeySide& side, const Piece& piece) {
      const kernels::TileShape& shape = args.shape;
      const void* const d_o = kernels::packed_data(args.d_o, shape.heads.q_count, args.queries.count, shape.value_dim);
      const Inputs in = inputs_of(args, side, piece);
      calls.push_back({.plan = plan_for(args, side, piece),
                       .operands = {.q = in.q,
                                    .k = in.k,
                                    .v = in.v,
                                    .d_o = advanced(d_o, piece.rows.begin * shape.value_dim, shape.dtype),
                                    .stats = static_cast<const float*>(args.lse) + piece.rows.begin,
                                    .scores = shape.scores},
                       .side = index(&side - args.keys.data()),
                       .first_row = piece.rows.begin,
                       .first_column = piece.columns.begin,
                       .all_rows = has_all(piece.rows, args.queries),
                       .all_columns = has_all(piece.columns, side.keys)});
    });
    return prepare_gradients(gpu_, args, std::move(calls));
  }

 private:
  /// Where a piece begins.
  struct Inputs {
    const void* q;
    const void* k;
    const void* v;
  };

  static bool has_all(const IndexRange& range, const Run& run) { return range.begin == 0 && range.end == run.count; }

  /// Calls visit(side, piece), having refused what cuDNN cannot express.
  template <class Args, class Visit>
  void for_each_piece(const Args& args, Visit visit) {
    if (const std::string why = why_not(args.shape, pass_of(args)); !why.empty()) refuse(why + ": take provider own");
    for (const kernels::KeySide& side : args.keys) {
      for (const Piece& piece : pieces_of(args.queries, side.keys, side.bands)) {
        const std::string why = why_no_piece(piece, pass_of(args), gpu_.library().get_version());
        if (!why.empty()) refuse(why);
        visit(side, piece);
      }
    }
  }

  template <class Args>
  static Inputs inputs_of(const Args& args, const kernels::KeySide& side, const Piece& piece) {
    const kernels::TileShape& shape = args.shape;
    const void* const q = kernels::packed_data(args.q, shape.heads.q_count, args.queries.count, shape.head_dim);
    const void* const k = kernels::packed_data(side.k, shape.heads.kv_count, side.keys.count, shape.head_dim);
    const void* const v = kernels::packed_data(side.v, shape.heads.kv_count, side.keys.count, shape.value_dim);
    return {advanced(q, piece.rows.begin * shape.head_dim, shape.dtype),
            advanced(k, piece.columns.begin * shape.head_dim, shape.dtype),
            advanced(v, piece.columns.begin * shape.value_dim, shape.dtype)};
  }

  template <class Args>
  std::shared_ptr<const AttendPlan> plan_for(const Args& args, const kernels::KeySide& side, const Piece& piece) {
    const AttendShape shape{.pass = pass_of(args),
                            .dtype = args.shape.dtype,
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

  const int architecture_;
  Gpu gpu_;
  std::map<AttendShape, std::shared_ptr<const AttendPlan>> plans_;
};

}  // namespace

std::unique_ptr<cuda::AttendProvider> make_provider(const Library& library, cuda::Driver& driver) {
  return std::make_unique<CudnnProvider>(library, driver);
}

}  // namespace distattn::backends::cudnn

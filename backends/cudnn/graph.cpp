#include "backends/cudnn/graph.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "distattn/error.hpp"

namespace distattn::backends::cudnn {
namespace {

using Dims = std::array<std::int64_t, 4>;

/// The tensors of a graph that memory stands behind. Intermediate ones count on from `intermediate`.
enum class Uid : std::int64_t { q = 1, k, v, o, stats, scale, hidden, left, right, intermediate = 100 };

constexpr float hidden_score = -std::numeric_limits<float>::infinity();
/// Statistics begin at any row, what has a head dimension at a multiple of 16 bytes.
constexpr std::int64_t alignment_of(Uid uid) { return uid == Uid::stats ? sizeof(float) : 16; }
constexpr std::int64_t most_engines = 16;

DataType type_of(DType dtype) { return dtype == DType::fp16 ? DataType::fp16 : DataType::bf16; }

Dims packed(const Dims& dims) { return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}; }

/// Collects operations in the order in which they are made, which cuDNN's engines look at.
class GraphBuilder {
 public:
  GraphBuilder(const Library& library, const AttendShape& shape)
      : library_(library), shape_(shape), score_dims_{shape.batch, shape.heads, shape.rows, shape.columns} {}

  void build() {
    Descriptor scores = intermediate(DataType::fp32, score_dims_);
    matmul(rows_of(Uid::q, shape_.heads, shape_.q_tokens, shape_.rows, shape_.head_dim), keys_transposed(), scores);
    scores = pointwise(PointwiseMode::mul, scores, value(Uid::scale, DataType::fp32));
    if (shape_.right) scores = visible_before_right(scores);
    if (shape_.left) scores = visible_behind_left(scores);
    const Descriptor weights = softmax(scores);
    const Dims o_dims{shape_.batch, shape_.heads, shape_.rows, shape_.value_dim};
    Dims o_strides = packed({shape_.batch, shape_.heads, shape_.q_tokens, shape_.value_dim});
    matmul(weights, rows_of(Uid::v, shape_.kv_heads, shape_.k_tokens, shape_.columns, shape_.value_dim),
           tensor(Uid::o, DataType::fp32, o_dims, o_strides, Kind::memory));
  }

  const std::vector<Descriptor>& operations() const { return operations_; }

 private:
  enum class Kind { memory, intermediate, value };

  Descriptor tensor(Uid uid, DataType type, const Dims& dims, const Dims& strides, Kind kind) {
    Descriptor made(library_, DescriptorType::tensor);
    made.set(Attribute::tensor_unique_id, AttributeType::int64, static_cast<std::int64_t>(uid))
        .set(Attribute::tensor_data_type, AttributeType::data_type, type)
        .set(Attribute::tensor_dimensions, AttributeType::int64, std::vector(dims.begin(), dims.end()))
        .set(Attribute::tensor_strides, AttributeType::int64, std::vector(strides.begin(), strides.end()))
        .set(Attribute::tensor_byte_alignment, AttributeType::int64, alignment_of(uid))
        .set(Attribute::tensor_is_virtual, AttributeType::boolean, kind == Kind::intermediate)
        .set(Attribute::tensor_is_by_value, AttributeType::boolean, kind == Kind::value);
    return made.finalize("describe a tensor");
  }
  Descriptor intermediate(DataType type, const Dims& dims) {
    const auto uid = static_cast<Uid>(static_cast<std::int64_t>(Uid::intermediate) + intermediates_++);
    return tensor(uid, type, dims, packed(dims), Kind::intermediate);
  }
  Descriptor value(Uid uid, DataType type) { return tensor(uid, type, {1, 1, 1, 1}, {1, 1, 1, 1}, Kind::value); }
  /// The first rows of each head of a segment.
  Descriptor rows_of(Uid uid, std::int64_t heads, std::int64_t tokens, std::int64_t rows, std::int64_t dim) {
    return tensor(uid, type_of(shape_.dtype), {shape_.batch, heads, rows, dim},
                  packed({shape_.batch, heads, tokens, dim}), Kind::memory);
  }
  Descriptor keys_transposed() {
    const Dims strides = packed({shape_.batch, shape_.kv_heads, shape_.k_tokens, shape_.head_dim});
    return tensor(Uid::k, type_of(shape_.dtype), {shape_.batch, shape_.kv_heads, shape_.head_dim, shape_.columns},
                  {strides[0], strides[1], strides[3], strides[2]}, Kind::memory);
  }

  void matmul(const Descriptor& a, const Descriptor& b, const Descriptor& c) {
    Descriptor how(library_, DescriptorType::matmul);
    how.set(Attribute::matmul_comp_type, AttributeType::data_type, DataType::fp32).finalize("describe a product");
    Descriptor operation(library_, DescriptorType::operation_matmul);
    operation.set(Attribute::operation_matmul_a, a)
        .set(Attribute::operation_matmul_b, b)
        .set(Attribute::operation_matmul_c, c)
        .set(Attribute::operation_matmul_descriptor, how);
    operations_.push_back(operation.finalize("describe a product"));
  }

  struct Pointwise {
    PointwiseMode mode;
    DataType computed_in = DataType::fp32;
    std::int64_t axis = -1;
    const Descriptor* choice = nullptr;
  };
  void pointwise(const Pointwise& what, const Descriptor& x, const Descriptor* b, const Descriptor& y) {
    Descriptor how(library_, DescriptorType::pointwise);
    how.set(Attribute::pointwise_mode, AttributeType::pointwise_mode, what.mode)
        .set(Attribute::pointwise_math_prec, AttributeType::data_type, what.computed_in);
    if (what.axis >= 0) how.set(Attribute::pointwise_axis, AttributeType::int64, what.axis);
    how.finalize("describe an operation");
    Descriptor operation(library_, DescriptorType::operation_pointwise);
    operation.set(Attribute::operation_pointwise_descriptor, how).set(Attribute::operation_pointwise_x, x);
    if (b != nullptr) operation.set(Attribute::operation_pointwise_b, *b);
    if (what.choice != nullptr) operation.set(Attribute::operation_pointwise_t, *what.choice);
    operation.set(Attribute::operation_pointwise_y, y);
    operations_.push_back(operation.finalize("describe an operation"));
  }
  Descriptor pointwise(PointwiseMode mode, const Descriptor& x, const Descriptor& b) {
    Descriptor y = intermediate(DataType::fp32, score_dims_);
    pointwise({.mode = mode}, x, &b, y);
    return y;
  }

  /// The row or column of each score.
  Descriptor index_along(std::int64_t axis, const Descriptor& scores) {
    Descriptor y = intermediate(DataType::int32, score_dims_);
    pointwise({.mode = PointwiseMode::gen_index, .axis = axis}, scores, nullptr, y);
    return y;
  }
  Descriptor shifted(const Descriptor& indices, Uid by) {
    Descriptor y = intermediate(DataType::int32, score_dims_);
    const Descriptor distance = value(by, DataType::int32);
    pointwise({.mode = PointwiseMode::add, .computed_in = DataType::int32}, indices, &distance, y);
    return y;
  }
  /// `scores` where a compares with b, and hidden elsewhere.
  Descriptor where(PointwiseMode comparison, const Descriptor& a, const Descriptor& b, const Descriptor& scores) {
    const Descriptor seen = intermediate(DataType::boolean, score_dims_);
    pointwise({.mode = comparison, .computed_in = DataType::boolean}, a, &b, seen);
    Descriptor y = intermediate(DataType::fp32, score_dims_);
    if (!hidden_) hidden_ = value(Uid::hidden, DataType::fp32);
    pointwise({.mode = PointwiseMode::binary_select, .choice = &seen}, scores, &*hidden_, y);
    return y;
  }
  Descriptor visible_before_right(const Descriptor& scores) {
    Descriptor row = index_along(2, scores);
    const Descriptor column = index_along(3, scores);
    if (*shape_.right != 0) row = shifted(row, Uid::right);
    return where(PointwiseMode::cmp_ge, row, column, scores);
  }
  Descriptor visible_behind_left(const Descriptor& scores) {
    const Descriptor row = index_along(2, scores), column = index_along(3, scores);
    return where(PointwiseMode::cmp_gt, shifted(column, Uid::left), row, scores);
  }

  void reduce(ReductionOperator how, const Descriptor& x, const Descriptor& y) {
    Descriptor reduction(library_, DescriptorType::reduction);
    reduction.set(Attribute::reduction_operator, AttributeType::reduction_operator, how)
        .set(Attribute::reduction_comp_type, AttributeType::data_type, DataType::fp32)
        .finalize("describe a reduction");
    Descriptor operation(library_, DescriptorType::operation_reduction);
    operation.set(Attribute::operation_reduction_x, x)
        .set(Attribute::operation_reduction_y, y)
        .set(Attribute::operation_reduction_descriptor, reduction);
    operations_.push_back(operation.finalize("describe a reduction"));
  }

  /// The weights in the type of the inputs; statistics on the way.
  Descriptor softmax(const Descriptor& scores) {
    const Dims row_dims{shape_.batch, shape_.heads, shape_.rows, 1};
    const Descriptor largest = intermediate(DataType::fp32, row_dims);
    const Descriptor sum = intermediate(DataType::fp32, row_dims);
    const Descriptor logarithm = intermediate(DataType::fp32, row_dims);
    const Descriptor exponentials = intermediate(DataType::fp32, score_dims_);
    reduce(ReductionOperator::max, scores, largest);
    const Descriptor below = pointwise(PointwiseMode::sub, scores, largest);
    pointwise({.mode = PointwiseMode::exp}, below, nullptr, exponentials);
    reduce(ReductionOperator::add, exponentials, sum);
    pointwise({.mode = PointwiseMode::log}, sum, nullptr, logarithm);
    const Dims strides{shape_.heads * shape_.q_tokens, shape_.q_tokens, 1, 1};
    pointwise({.mode = PointwiseMode::add}, largest, &logarithm,
              tensor(Uid::stats, DataType::fp32, row_dims, strides, Kind::memory));
    Descriptor weights = intermediate(type_of(shape_.dtype), score_dims_);
    pointwise({.mode = PointwiseMode::div}, exponentials, &sum, weights);
    return weights;
  }

  const Library& library_;
  const AttendShape& shape_;
  const Dims score_dims_;
  std::vector<Descriptor> operations_;
  std::optional<Descriptor> hidden_;
  std::int64_t intermediates_ = 0;
};

std::vector<DescriptorHandle> handles_of(const std::vector<Descriptor>& descriptors) {
  std::vector<DescriptorHandle> handles;
  for (const Descriptor& descriptor : descriptors) handles.push_back(descriptor.handle());
  return handles;
}

}  // namespace

AttendGraph::AttendGraph(const Library& library, const AttendShape& shape, const Target& target)
    : library_(library), graph_(library, DescriptorType::operation_graph) {
  GraphBuilder builder(library, shape);
  builder.build();
  graph_.set(Attribute::operation_graph_ops, AttributeType::descriptor, handles_of(builder.operations()));
  if (target.handle != nullptr) graph_.set(Attribute::operation_graph_handle, AttributeType::handle, target.handle);
  graph_.finalize("make a graph of an attention");
}

std::vector<Descriptor> AttendGraph::engines(const Target& target) const {
  Descriptor heuristics(library_, DescriptorType::engine_heuristics);
  heuristics.set(Attribute::engine_heuristics_operation_graph, graph_)
      .set(Attribute::engine_heuristics_mode, AttributeType::heur_mode, HeuristicsMode::a);
  if (target.properties) heuristics.set(Attribute::engine_heuristics_device_properties, *target.properties);
  heuristics.finalize("find a kernel for an attention");
  std::vector<Descriptor> engines;
  for (std::int64_t i = 0; i < most_engines; ++i) engines.emplace_back(library_, DescriptorType::engine_config);
  std::vector<DescriptorHandle> handles = handles_of(engines);
  std::int64_t count = 0;
  library_.check(library_.get_attribute(heuristics.handle(), Attribute::engine_heuristics_results,
                                        AttributeType::descriptor, most_engines, &count, handles.data()),
                 "find a kernel for an attention");
  engines.erase(engines.begin() + std::min(count, most_engines), engines.end());
  return engines;
}

AttendPlan::AttendPlan(const Library& library, const AttendShape& shape, const Target& target) : library_(library) {
  if (shape.left) left_ = static_cast<std::int32_t>(*shape.left);
  if (shape.right) right_ = static_cast<std::int32_t>(*shape.right);
  const AttendGraph graph(library, shape, target);
  for (const Descriptor& engine : graph.engines(target)) {
    Descriptor plan(library, DescriptorType::execution_plan);
    plan.set(Attribute::execution_plan_engine_config, engine);
    if (target.handle != nullptr) plan.set(Attribute::execution_plan_handle, AttributeType::handle, target.handle);
    if (target.properties) plan.set(Attribute::execution_plan_device_properties, *target.properties);
    if (!plan.can_finalize()) continue;
    std::int64_t bytes = 0, count = 0;
    library.check(library.get_attribute(plan.handle(), Attribute::execution_plan_workspace_size, AttributeType::int64,
                                        1, &count, &bytes),
                  "say how much memory it needs");
    workspace_bytes_ = static_cast<std::size_t>(bytes);
    plan_ = plan;
    return;
  }
  throw Error(ErrorKind::environment,
              "cuDNN has no kernel for this attention (none of its engines takes the graph) "
              "take provider own");
}

void AttendPlan::start(Handle handle, const Operands& operands, void* workspace) const {
  std::vector<std::int64_t> uids;
  std::vector<const void*> pointers;
  const auto give = [&](Uid uid, const void* pointer) {
    uids.push_back(static_cast<std::int64_t>(uid));
    pointers.push_back(pointer);
  };
  give(Uid::q, operands.q);
  give(Uid::k, operands.k);
  give(Uid::v, operands.v);
  give(Uid::o, operands.o);
  give(Uid::stats, operands.stats);
  give(Uid::scale, &operands.scale);
  if (left_ || right_) give(Uid::hidden, &hidden_score);
  if (left_) give(Uid::left, &*left_);
  if (right_ && *right_ != 0) give(Uid::right, &*right_);
  Descriptor pack(library_, DescriptorType::variant_pack);
  pack.set(Attribute::variant_pack_unique_ids, AttributeType::int64, uids)
      .set(Attribute::variant_pack_data_pointers, AttributeType::void_ptr, pointers)
      .set(Attribute::variant_pack_workspace, AttributeType::void_ptr, workspace)
      .finalize("take the operands");
  library_.check(library_.execute(handle, plan_->handle(), pack.handle()), "start an attention");
}

}  // namespace distattn::backends::cudnn

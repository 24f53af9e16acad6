#include "backends/cudnn/graph_builder.hpp"

namespace distattn::backends::cudnn {
namespace {

/// Statistics begin at any row, what has a head dimension at a multiple of 16 bytes.
constexpr std::int64_t alignment_of(Uid uid) { return uid == Uid::stats ? sizeof(float) : 16; }

Dims packed(const Dims& dims) { return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}; }
Dims transposed(const Dims& axes) { return {axes[0], axes[1], axes[3], axes[2]}; }

}  // namespace

GraphBuilder::GraphBuilder(const Library& library, const AttendShape& shape)
    : library_(library),
      shape_(shape),
      type_(shape.dtype == DType::fp16 ? DataType::fp16 : DataType::bf16),
      score_dims_{shape.batch, shape.heads, shape.rows, shape.columns},
      row_dims_{shape.batch, shape.heads, shape.rows, 1} {}

/// O = softmax(scale · Q Kᵀ) V in fp32, with statistics.
void GraphBuilder::attention() {
  const Descriptor q = queries(Uid::q, shape_.head_dim), k = keys_transposed(Uid::k, shape_.head_dim);
  const Descriptor products = matmul(q, k, intermediate(DataType::fp32, score_dims_));
  const Descriptor scores = scores_of(products, value(Uid::scale, DataType::fp32));
  const Descriptor weights = softmax(masked(scores));
  const Dims v_strides = packed({shape_.batch, shape_.kv_heads, shape_.k_tokens, shape_.value_dim});
  const Descriptor v =
      tensor(Uid::v, type_, {shape_.batch, shape_.kv_heads, shape_.columns, shape_.value_dim}, v_strides, Kind::memory);
  const Dims o_strides = packed({shape_.batch, shape_.heads, shape_.q_tokens, shape_.value_dim});
  matmul(weights, v,
         tensor(Uid::o, DataType::fp32, {shape_.batch, shape_.heads, shape_.rows, shape_.value_dim}, o_strides,
                Kind::memory));
}

/// P = exp(scale · Q Kᵀ − stats), dV = Pᵀ dO, dS = scale · P ∘ (dO Vᵀ − rowsum(dO ∘ O)), dK = dSᵀ Q, dQ = dS K.
void GraphBuilder::gradients() {
  const Descriptor q = queries(Uid::q, shape_.head_dim), k = keys_transposed(Uid::k, shape_.head_dim);
  const Descriptor d_o = queries(Uid::d_o, shape_.value_dim), v = keys_transposed(Uid::v, shape_.value_dim);
  const Descriptor scale = value(Uid::scale, DataType::fp32);
  const Descriptor row_sums = delta(d_o);

  const Descriptor products = matmul(q, k, intermediate(DataType::fp32, score_dims_));
  const Descriptor scores = pointwise(PointwiseMode::sub, scores_of(products, scale), statistics());
  const Descriptor weights = intermediate(DataType::fp32, score_dims_);
  pointwise({.mode = PointwiseMode::exp}, masked(scores), nullptr, weights);
  key_gradient(Uid::dv, weights, d_o, shape_.value_dim);

  const Descriptor d_weights = matmul(d_o, v, intermediate(DataType::fp32, score_dims_));
  const Descriptor d_scores =
      pointwise(PointwiseMode::mul, pointwise(PointwiseMode::sub, d_weights, row_sums), weights);
  const Descriptor d_products = product_gradients(d_scores, scale);
  key_gradient(Uid::dk, d_products, q, shape_.head_dim);
  query_gradient(d_products, k);
}

/// The map of scores, and its derivative.
Descriptor GraphBuilder::scores_of(const Descriptor& products, const Descriptor& scale) {
  return pointwise(PointwiseMode::mul, products, scale);
}
Descriptor GraphBuilder::product_gradients(const Descriptor& d_scores, const Descriptor& scale) {
  return pointwise(PointwiseMode::mul, d_scores, scale);
}

Descriptor GraphBuilder::tensor(Uid uid, DataType type, const Dims& dims, const Dims& strides, Kind kind) {
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
Descriptor GraphBuilder::intermediate(DataType type, const Dims& dims) {
  return intermediate(type, dims, packed(dims));
}
Descriptor GraphBuilder::intermediate(DataType type, const Dims& dims, const Dims& strides) {
  const auto uid = static_cast<Uid>(static_cast<std::int64_t>(Uid::intermediate) + intermediates_++);
  return tensor(uid, type, dims, strides, Kind::intermediate);
}
Descriptor GraphBuilder::value(Uid uid, DataType type) {
  return tensor(uid, type, {1, 1, 1, 1}, {1, 1, 1, 1}, Kind::value);
}
/// The piece's rows of a segment of queries.
Descriptor GraphBuilder::queries(Uid uid, std::int64_t dim) {
  return tensor(uid, type_, {shape_.batch, shape_.heads, shape_.rows, dim},
                packed({shape_.batch, shape_.heads, shape_.q_tokens, dim}), Kind::memory);
}
/// The piece's columns of a segment of keys or values.
Descriptor GraphBuilder::keys_transposed(Uid uid, std::int64_t dim) {
  return tensor(uid, type_, {shape_.batch, shape_.kv_heads, dim, shape_.columns},
                transposed(packed({shape_.batch, shape_.kv_heads, shape_.k_tokens, dim})), Kind::memory);
}
Descriptor GraphBuilder::statistics() {
  return tensor(Uid::stats, DataType::fp32, row_dims_, {shape_.heads * shape_.q_tokens, shape_.q_tokens, 1, 1},
                Kind::memory);
}

Descriptor GraphBuilder::matmul(const Descriptor& a, const Descriptor& b, const Descriptor& c) {
  Descriptor how(library_, DescriptorType::matmul);
  how.set(Attribute::matmul_comp_type, AttributeType::data_type, DataType::fp32).finalize("describe a product");
  Descriptor operation(library_, DescriptorType::operation_matmul);
  operation.set(Attribute::operation_matmul_a, a)
      .set(Attribute::operation_matmul_b, b)
      .set(Attribute::operation_matmul_c, c)
      .set(Attribute::operation_matmul_descriptor, how);
  operations_.push_back(operation.finalize("describe a product"));
  return c;
}

void GraphBuilder::pointwise(const Pointwise& what, const Descriptor& x, const Descriptor* b, const Descriptor& y) {
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
/// Of scores.
Descriptor GraphBuilder::pointwise(PointwiseMode mode, const Descriptor& x, const Descriptor& b) {
  const Descriptor y = intermediate(DataType::fp32, score_dims_);
  pointwise({.mode = mode}, x, &b, y);
  return y;
}

Descriptor GraphBuilder::reduce(ReductionOperator how, const Descriptor& x, const Descriptor& y) {
  Descriptor reduction(library_, DescriptorType::reduction);
  reduction.set(Attribute::reduction_operator, AttributeType::reduction_operator, how)
      .set(Attribute::reduction_comp_type, AttributeType::data_type, DataType::fp32)
      .finalize("describe a reduction");
  Descriptor operation(library_, DescriptorType::operation_reduction);
  operation.set(Attribute::operation_reduction_x, x)
      .set(Attribute::operation_reduction_y, y)
      .set(Attribute::operation_reduction_descriptor, reduction);
  operations_.push_back(operation.finalize("describe a reduction"));
  return y;
}

/// The same memory with y's dimensions and strides.
Descriptor GraphBuilder::reshape(const Descriptor& x, const Descriptor& y) {
  Descriptor operation(library_, DescriptorType::operation_reshape);
  operation.set(Attribute::operation_reshape_x, x).set(Attribute::operation_reshape_y, y);
  operations_.push_back(operation.finalize("describe a transposition"));
  return y;
}

Descriptor GraphBuilder::masked(Descriptor scores) {
  if (shape_.right) scores = visible_before_right(scores);
  if (shape_.left) scores = visible_behind_left(scores);
  return scores;
}
Descriptor GraphBuilder::visible_before_right(const Descriptor& scores) {
  Descriptor row = index_along(2, scores);
  const Descriptor column = index_along(3, scores);
  if (*shape_.right != 0) row = shifted(row, Uid::right, DataType::int32);
  return where(PointwiseMode::cmp_ge, row, column, scores);
}
/// The distance is a float as in NVIDIA's own front end: cuDNN writes other code for an integer.
Descriptor GraphBuilder::visible_behind_left(const Descriptor& scores) {
  const Descriptor row = index_along(2, scores), column = index_along(3, scores);
  return where(PointwiseMode::cmp_gt, shifted(column, Uid::left, DataType::fp32), row, scores);
}
/// The row or column of each score.
Descriptor GraphBuilder::index_along(std::int64_t axis, const Descriptor& scores) {
  const Descriptor y = intermediate(DataType::int32, score_dims_);
  pointwise({.mode = PointwiseMode::gen_index, .axis = axis}, scores, nullptr, y);
  return y;
}
Descriptor GraphBuilder::shifted(const Descriptor& indices, Uid by, DataType type) {
  const Descriptor y = intermediate(type, score_dims_);
  const Descriptor distance = value(by, type);
  pointwise({.mode = PointwiseMode::add, .computed_in = type}, indices, &distance, y);
  return y;
}
/// `scores` where a compares with b, and hidden elsewhere.
Descriptor GraphBuilder::where(PointwiseMode comparison, const Descriptor& a, const Descriptor& b,
                               const Descriptor& scores) {
  const Descriptor seen = intermediate(DataType::boolean, score_dims_);
  pointwise({.mode = comparison, .computed_in = DataType::boolean}, a, &b, seen);
  const Descriptor y = intermediate(DataType::fp32, score_dims_);
  if (!hidden_) hidden_ = value(Uid::hidden, DataType::fp32);
  pointwise({.mode = PointwiseMode::binary_select, .choice = &seen}, scores, &*hidden_, y);
  return y;
}

/// The weights in the type of the inputs; statistics on the way.
Descriptor GraphBuilder::softmax(const Descriptor& scores) {
  const Descriptor largest = reduce(ReductionOperator::max, scores, intermediate(DataType::fp32, row_dims_));
  const Descriptor below = pointwise(PointwiseMode::sub, scores, largest);
  const Descriptor exponentials = intermediate(DataType::fp32, score_dims_);
  pointwise({.mode = PointwiseMode::exp}, below, nullptr, exponentials);
  const Descriptor sum = reduce(ReductionOperator::add, exponentials, intermediate(DataType::fp32, row_dims_));
  const Descriptor logarithm = intermediate(DataType::fp32, row_dims_);
  pointwise({.mode = PointwiseMode::log}, sum, nullptr, logarithm);
  pointwise({.mode = PointwiseMode::add}, largest, &logarithm, statistics());
  const Descriptor weights = intermediate(type_, score_dims_);
  pointwise({.mode = PointwiseMode::div}, exponentials, &sum, weights);
  return weights;
}

/// rowsum(dO ∘ O), times one: without that factor, which is dropout's, cuDNN takes an engine that keeps all scores.
Descriptor GraphBuilder::delta(const Descriptor& d_o) {
  const Descriptor o = queries(Uid::o, shape_.value_dim), one = value(Uid::one, DataType::fp32);
  const Descriptor products = intermediate(DataType::fp32, {shape_.batch, shape_.heads, shape_.rows, shape_.value_dim});
  pointwise({.mode = PointwiseMode::mul}, d_o, &o, products);
  const Descriptor sums = reduce(ReductionOperator::add, products, intermediate(DataType::fp32, row_dims_));
  const Descriptor y = tensor(Uid::delta, DataType::fp32, row_dims_, packed(row_dims_), Kind::memory);
  pointwise({.mode = PointwiseMode::mul}, sums, &one, y);
  return y;
}

/// scoresᵀ times rows of queries; of query heads that share a key head, the sum.
void GraphBuilder::key_gradient(Uid uid, const Descriptor& scores, const Descriptor& rows, std::int64_t dim) {
  const Descriptor turned =
      reshape(scores, intermediate(type_, transposed(score_dims_), transposed(packed(score_dims_))));
  const Descriptor gradient = tensor(uid, type_, {shape_.batch, shape_.kv_heads, shape_.columns, dim},
                                     packed({shape_.batch, shape_.kv_heads, shape_.k_tokens, dim}), Kind::memory);
  if (shape_.heads == shape_.kv_heads) {
    matmul(turned, rows, gradient);
    return;
  }
  const Dims of_each{shape_.batch, shape_.heads, shape_.columns, dim};
  reduce(ReductionOperator::add, matmul(turned, rows, intermediate(type_, of_each)), gradient);
}

/// scores times keys, summed in fp32 in memory: else cuDNN takes an engine that keeps all scores.
void GraphBuilder::query_gradient(const Descriptor& scores, const Descriptor& k) {
  const Descriptor keys =
      reshape(k, intermediate(type_, {shape_.batch, shape_.kv_heads, shape_.columns, shape_.head_dim},
                              packed({shape_.batch, shape_.kv_heads, shape_.k_tokens, shape_.head_dim})));
  const Dims dims{shape_.batch, shape_.heads, shape_.rows, shape_.head_dim};
  const Descriptor sum = matmul(scores, keys, tensor(Uid::dq_sum, DataType::fp32, dims, packed(dims), Kind::memory));
  pointwise({.mode = PointwiseMode::identity}, sum, nullptr, queries(Uid::dq, shape_.head_dim));
}

}  // namespace distattn::backends::cudnn

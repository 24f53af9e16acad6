#include "cli/run/inputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "distattn/convert.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::cli {
namespace {

constexpr std::array<const char*, 4> tensor_names = {"q", "k", "v", "do"};  // by Tensor

const StoredArray& array_of(const std::map<std::string, StoredArray>& arrays, Tensor tensor) {
  const char* const name = tensor_names[index(tensor)];
  const auto found = arrays.find(name);
  if (found == arrays.end()) refuse(fmt::format("the input has no tensor {} (q, k and v are needed): add it", name));
  return found->second;
}

std::string text_of(const StoredArray& array) {
  return fmt::format("{} ({})", array.origin(), fmt::join(array.shape(), " x "));
}

/// Refuses two arrays that differ along an axis on which they must agree.
void check_equal(const StoredArray& a, const StoredArray& b, std::size_t axis, const char* what) {
  if (a.tensor().shape[axis] == b.tensor().shape[axis]) return;
  refuse(fmt::format("{} and {} differ in {} (they must agree): check that they belong together", text_of(a),
                     text_of(b), what));
}

/// The beginning of keys, which values are.
ConstTensorView values_in(const StoredArray& k, std::int64_t value_dim) {
  ConstTensorView values = k.tensor();
  if (value_dim > values.head_dim()) {
    refuse(fmt::format("values of {} in {} (a value is the beginning of its key): choose --value-dim {} or less",
                       value_dim, text_of(k), values.head_dim()));
  }
  values.shape[3] = value_dim;
  return values;
}

void check_together(const StoredArray& q, const StoredArray& k, const StoredArray& v) {
  for (const StoredArray* other : {&k, &v}) {
    if (other->has_batch() != q.has_batch()) {
      refuse(
          fmt::format("{} and {} differ in rank (with and without batch): reshape one", text_of(q), text_of(*other)));
    }
    check_equal(q, *other, 0, "batch");
  }
  check_equal(k, v, 1, "sequence");
  check_equal(k, v, 2, "heads");
  check_equal(q, k, 3, "head_dim");
}

void check_gradient(const StoredArray& d_o, const StoredArray& q, std::int64_t value_dim) {
  if (d_o.has_batch() != q.has_batch()) {
    refuse(fmt::format("{} and {} differ in rank (with and without batch): reshape one", text_of(d_o), text_of(q)));
  }
  check_equal(d_o, q, 0, "batch");
  check_equal(d_o, q, 1, "sequence");
  check_equal(d_o, q, 2, "heads");
  if (d_o.tensor().head_dim() == value_dim) return;
  refuse(
      fmt::format("{} has rows of {} and values have {} (a gradient is shaped like the output): check that they "
                  "belong together",
                  text_of(d_o), d_o.tensor().head_dim(), value_dim));
}

}  // namespace

Inputs Inputs::from_arrays(std::map<std::string, StoredArray> arrays, std::optional<std::int64_t> shared_value_dim) {
  Inputs inputs;
  inputs.arrays_ = std::move(arrays);
  const StoredArray& q = array_of(inputs.arrays_, Tensor::q);
  const StoredArray& k = array_of(inputs.arrays_, Tensor::k);
  const bool shared = shared_value_dim.has_value();
  if (shared && inputs.arrays_.contains("v"))
    refuse("the input has a tensor v (with shared keys and values, v is the beginning of k): leave one of them out");
  const StoredArray& v = shared ? k : array_of(inputs.arrays_, Tensor::v);
  check_together(q, k, v);
  inputs.views_ = {q.tensor(), k.tensor(), shared ? values_in(k, *shared_value_dim) : v.tensor(), ConstTensorView{}};
  if (const auto d_o = inputs.arrays_.find("do"); d_o != inputs.arrays_.end()) {
    check_gradient(d_o->second, q, inputs.views_[index(Tensor::v)].head_dim());
    inputs.views_.back() = d_o->second.tensor();
  }
  inputs.has_batch_ = q.has_batch();
  inputs.origin_ = q.origin();
  const auto& [query, key, value, gradient] = inputs.views_;
  inputs.shape_ = {query.batch(), query.sequence(), key.sequence(),   query.heads(),
                   key.heads(),   query.head_dim(), value.head_dim(), shared};
  return inputs;
}

Inputs Inputs::random(const Shape& shape, std::uint64_t seed) {
  Inputs inputs;
  inputs.shape_ = shape;
  inputs.seed_ = seed;
  return inputs;
}

Inputs Inputs::random(const Problem& problem, std::uint64_t seed) {
  Inputs inputs = random(shape_of(problem), seed);
  if (problem.scores.sink_logits) inputs.draw_sink_logits(seed);
  return inputs;
}

/// Rounded to what files and tensors hold.
void Inputs::draw_sink_logits(std::uint64_t seed) {
  sink_logits_.resize(index(shape_.heads));
  for (std::size_t head = 0; head < sink_logits_.size(); ++head) {
    const double drawn = random_normal(seed, Tensor::sink_logits, static_cast<std::int64_t>(head));
    sink_logits_[head] = static_cast<double>(static_cast<float>(drawn));
  }
}

const StoredArray* Inputs::widest() const {
  const StoredArray* widest = nullptr;
  for (const char* const name : tensor_names) {
    const auto found = arrays_.find(name);
    if (found == arrays_.end()) continue;
    const StoredArray& array = found->second;
    if (widest == nullptr || size_of(array.tensor().dtype) > size_of(widest->tensor().dtype)) widest = &array;
  }
  return widest;
}

const StoredArray* Inputs::stored(Tensor tensor) const {
  const auto found = arrays_.find(tensor_names[index(tensor)]);
  return found == arrays_.end() ? nullptr : &found->second;
}

void Inputs::read(Tensor tensor, std::int64_t b, std::int64_t token, std::int64_t first_head, std::int64_t heads_read,
                  DType dtype, std::byte* into) const {
  const std::int64_t width = dim(tensor);
  if (seed_) {
    const std::int64_t row = (b * tokens(tensor) + token) * heads(tensor) + first_head;
    if (tensor == Tensor::v && shape_.shared_kv) {
      const auto row_bytes = width * static_cast<std::int64_t>(size_of(dtype));
      for (std::int64_t h = 0; h < heads_read; ++h) {
        fill_normal(*seed_, Tensor::k, (row + h) * shape_.head_dim, width, dtype, into + h * row_bytes);
      }
      return;
    }
    fill_normal(*seed_, tensor, row * width, heads_read * width, dtype, into);
    return;
  }
  const ConstTensorView& view = views_[index(tensor)];
  const auto out_bytes = static_cast<std::int64_t>(size_of(dtype));
  if (view.data == nullptr) {
    const float one = 1;
    for (std::int64_t i = 0; i < heads_read * width; ++i) {
      convert(reinterpret_cast<const std::byte*>(&one), DType::fp32, into + i * out_bytes, dtype, 1);
    }
    return;
  }
  const std::int64_t run = view.strides[3] == 1 ? width : 1;
  const auto in_bytes = static_cast<std::int64_t>(size_of(view.dtype));
  for (std::int64_t h = 0; h < heads_read; ++h) {
    const std::byte* const from = view.row(b, token, first_head + h);
    for (std::int64_t x = 0; x < width; x += run) {
      convert(from + x * view.strides[3] * in_bytes, view.dtype, into + (h * width + x) * out_bytes, dtype, run);
    }
  }
}

}  // namespace distattn::cli

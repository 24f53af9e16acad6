#include "cudnn/interpreter.hpp"

#include <cmath>
#include <stdexcept>

#include "distattn/float16.hpp"

namespace standin {
namespace {

template <class Visit>
void for_each_index(const Dims& dims, Visit visit) {
  Dims index{};
  for (index[0] = 0; index[0] < dims[0]; ++index[0]) {
    for (index[1] = 0; index[1] < dims[1]; ++index[1]) {
      for (index[2] = 0; index[2] < dims[2]; ++index[2]) {
        for (index[3] = 0; index[3] < dims[3]; ++index[3]) visit(index);
      }
    }
  }
}

Dims dims_of(const Record& tensor) {
  const auto list = tensor.list<std::int64_t>(Attribute::tensor_dimensions);
  return {list.at(0), list.at(1), list.at(2), list.at(3)};
}

std::int64_t uid_of(const Record& tensor) { return tensor.value<std::int64_t>(Attribute::tensor_unique_id); }
DataType type_of(const Record& tensor) { return tensor.value<DataType>(Attribute::tensor_data_type); }
bool is_intermediate(const Record& tensor) { return tensor.value<bool>(Attribute::tensor_is_virtual); }

/// Elements from the first of a tensor in memory.
std::int64_t place_of(const Record& tensor, const Dims& index) {
  const auto strides = tensor.list<std::int64_t>(Attribute::tensor_strides);
  std::int64_t place = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) place += index[axis] * strides.at(axis);
  return place;
}

float element(const void* memory, std::int64_t place, DataType type) {
  switch (type) {
    case DataType::bf16:
      return distattn::bf16_to_float(static_cast<const std::uint16_t*>(memory)[place]);
    case DataType::fp16:
      return distattn::fp16_to_float(static_cast<const std::uint16_t*>(memory)[place]);
    case DataType::int32:
      return static_cast<float>(static_cast<const std::int32_t*>(memory)[place]);
    case DataType::fp32:
      return static_cast<const float*>(memory)[place];
    default:
      throw std::runtime_error("the stand-in does not know this element type");
  }
}

void put(void* memory, std::int64_t place, DataType type, float value) {
  switch (type) {
    case DataType::bf16:
      static_cast<std::uint16_t*>(memory)[place] = distattn::float_to_bf16(value);
      return;
    case DataType::fp16:
      static_cast<std::uint16_t*>(memory)[place] = distattn::float_to_fp16(value);
      return;
    case DataType::fp32:
      static_cast<float*>(memory)[place] = value;
      return;
    default:
      throw std::runtime_error("the stand-in does not write this element type");
  }
}

float rounded(float value, DataType type) {
  if (type == DataType::bf16) return distattn::bf16_to_float(distattn::float_to_bf16(value));
  if (type == DataType::fp16) return distattn::fp16_to_float(distattn::float_to_fp16(value));
  return value;
}

float apply(PointwiseMode mode, float x, float b) {
  switch (mode) {
    case PointwiseMode::add:
      return x + b;
    case PointwiseMode::sub:
      return x - b;
    case PointwiseMode::mul:
      return x * b;
    case PointwiseMode::div:
      return x / b;
    case PointwiseMode::exp:
      return std::exp(x);
    case PointwiseMode::log:
      return std::log(x);
    case PointwiseMode::identity:
      return x;
    case PointwiseMode::cmp_ge:
      return x >= b ? 1.0f : 0.0f;
    case PointwiseMode::cmp_gt:
      return x > b ? 1.0f : 0.0f;
    default:
      throw std::runtime_error("the stand-in does not know this operation");
  }
}

constexpr Attribute tensor_attributes[] = {
    Attribute::operation_matmul_a,    Attribute::operation_matmul_b,    Attribute::operation_matmul_c,
    Attribute::operation_reduction_x, Attribute::operation_reduction_y, Attribute::operation_pointwise_x,
    Attribute::operation_pointwise_b, Attribute::operation_pointwise_t, Attribute::operation_pointwise_y,
    Attribute::operation_reshape_x,   Attribute::operation_reshape_y};

}  // namespace

Computation::Computation(const Record& graph, std::map<std::int64_t, void*> memory)
    : graph_(graph), memory_(std::move(memory)) {
  for (const auto& operation : graph.parts.at(Attribute::operation_graph_ops)) {
    for (const auto name : tensor_attributes) {
      if (!operation->has(name)) continue;
      const Record& tensor = *operation->part(name);
      if (is_intermediate(tensor)) continue;
      const auto found = memory_.find(uid_of(tensor));
      if (found == memory_.end() || found->second == nullptr) {
        complete_ = false;
      } else if (tensor.value<bool>(Attribute::tensor_is_by_value)) {
        known_.insert_or_assign(uid_of(tensor), load(tensor));
      }
    }
  }
}

void Computation::run() {
  for (const auto& operation : graph_.parts.at(Attribute::operation_graph_ops)) {
    switch (operation->type) {
      case DescriptorType::operation_matmul:
        multiply(*operation);
        break;
      case DescriptorType::operation_reduction:
        reduce(*operation);
        break;
      case DescriptorType::operation_reshape:
        reshape(*operation);
        break;
      default:
        apply(*operation);
    }
  }
}

Tensor Computation::load(const Record& tensor) const {
  if (const auto found = known_.find(uid_of(tensor)); found != known_.end()) return found->second;
  if (is_intermediate(tensor)) throw std::runtime_error("a tensor is used before it is computed");
  Tensor value(dims_of(tensor));
  const void* const memory = memory_.at(uid_of(tensor));
  for_each_index(value.dims, [&](const Dims& index) {
    value.at(index) = element(memory, place_of(tensor, index), type_of(tensor));
  });
  return value;
}

void Computation::store(const Record& tensor, Tensor value) {
  if (is_intermediate(tensor)) {
    for (float& each : value.values) each = rounded(each, type_of(tensor));
    known_.insert_or_assign(uid_of(tensor), std::move(value));
    return;
  }
  void* const memory = memory_.at(uid_of(tensor));
  for_each_index(value.dims,
                 [&](const Dims& index) { put(memory, place_of(tensor, index), type_of(tensor), value.at(index)); });
}

/// Heads of b are shared by as many heads of a.
void Computation::multiply(const Record& operation) {
  const Tensor a = load(*operation.part(Attribute::operation_matmul_a));
  const Tensor b = load(*operation.part(Attribute::operation_matmul_b));
  const Record& into = *operation.part(Attribute::operation_matmul_c);
  Tensor c(dims_of(into));
  const std::int64_t sharing = a.dims[1] / b.dims[1], inner = a.dims[3];
  if (b.dims[2] != inner || a.dims[1] % b.dims[1] != 0) throw std::runtime_error("a product of different shapes");
  for_each_index(c.dims, [&](const Dims& index) {
    float sum = 0;
    for (std::int64_t k = 0; k < inner; ++k) {
      sum += a.at({index[0], index[1], index[2], k}) * b.at({index[0], index[1] / sharing, k, index[3]});
    }
    c.at(index) = sum;
  });
  store(into, std::move(c));
}

/// Heads of y are sums of as many heads of x.
void Computation::reduce(const Record& operation) {
  const Tensor x = load(*operation.part(Attribute::operation_reduction_x));
  const Record& into = *operation.part(Attribute::operation_reduction_y);
  const Record& how = *operation.part(Attribute::operation_reduction_descriptor);
  const bool largest = how.value<ReductionOperator>(Attribute::reduction_operator) == ReductionOperator::max;
  Tensor y(dims_of(into));
  for (float& each : y.values) each = largest ? -INFINITY : 0.0f;
  const std::int64_t sharing = x.dims[1] / y.dims[1];
  for_each_index(x.dims, [&](const Dims& index) {
    float& sum = y.at({index[0], index[1] / sharing, index[2], index[3]});
    sum = largest ? std::max(sum, x.at(index)) : sum + x.at(index);
  });
  store(into, std::move(y));
}

/// Elements keep their place in memory.
void Computation::reshape(const Record& operation) {
  const Record& from = *operation.part(Attribute::operation_reshape_x);
  const Record& into = *operation.part(Attribute::operation_reshape_y);
  const Tensor x = load(from);
  std::map<std::int64_t, float> at_place;
  for_each_index(x.dims, [&](const Dims& index) { at_place[place_of(from, index)] = x.at(index); });
  Tensor y(dims_of(into));
  for_each_index(y.dims, [&](const Dims& index) { y.at(index) = at_place.at(place_of(into, index)); });
  store(into, std::move(y));
}

void Computation::apply(const Record& operation) {
  const Record& how = *operation.part(Attribute::operation_pointwise_descriptor);
  const auto mode = how.value<PointwiseMode>(Attribute::pointwise_mode);
  const Record& into = *operation.part(Attribute::operation_pointwise_y);
  const Tensor x = load(*operation.part(Attribute::operation_pointwise_x));
  const auto operand = [&](Attribute name) {
    return operation.has(name) ? load(*operation.part(name)) : Tensor({1, 1, 1, 1});
  };
  const Tensor b = operand(Attribute::operation_pointwise_b);
  const Tensor choice = operand(Attribute::operation_pointwise_t);
  Tensor y(dims_of(into));
  for_each_index(y.dims, [&](const Dims& index) {
    if (mode == PointwiseMode::gen_index) {
      const auto axis = how.value<std::int64_t>(Attribute::pointwise_axis);
      y.at(index) = static_cast<float>(index[static_cast<std::size_t>(axis)]);
    } else if (mode == PointwiseMode::binary_select) {
      y.at(index) = choice.at(index) != 0 ? x.at(index) : b.at(index);
    } else {
      y.at(index) = standin::apply(mode, x.at(index), b.at(index));
    }
  });
  store(into, std::move(y));
}

}  // namespace standin

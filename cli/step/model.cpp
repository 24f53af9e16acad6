#include "cli/step/model.hpp"

#include <algorithm>

#include "cli/step/random.hpp"
#include "cli/step/work.hpp"
#include "distattn/error.hpp"

namespace distattn::step {
namespace {

constexpr double weight_deviation = 0.02;

void require_positive(std::int64_t value, const char* name) {
  if (value <= 0) refuse(std::string(name) + " is " + std::to_string(value) + " (it must be positive): give 1 or more");
}

/// Names and shapes, without offsets.
std::vector<Parameter> before_layers(const ModelShape& shape) { return {{"embedding", shape.vocab, shape.hidden}}; }

std::vector<Parameter> in_layer(const ModelShape& shape) {
  const std::int64_t h = shape.hidden, f = shape.ffn, kv = shape.kv_width();
  return {{"attention_gain", 1, h, Initial::one}, {"wq", h, h}, {"wk", h, kv}, {"wv", h, kv}, {"wo", h, h},
          {"ffn_gain", 1, h, Initial::one},       {"w1", h, f}, {"w3", h, f},  {"w2", f, h}};
}

std::vector<Parameter> after_layers(const ModelShape& shape) {
  return {{"final_gain", 1, shape.hidden, Initial::one}, {"head", shape.hidden, shape.vocab}};
}

double count_of(const std::vector<Parameter>& some) {
  double count = 0;
  for (const Parameter& p : some) count += static_cast<double>(p.rows) * static_cast<double>(p.cols);
  return count;
}

}  // namespace

void check(const ModelShape& shape) {
  require_positive(shape.layers, "layers");
  require_positive(shape.hidden, "hidden");
  require_positive(shape.ffn, "ffn");
  require_positive(shape.vocab, "vocab");
  require_positive(shape.heads, "heads");
  require_positive(shape.kv_heads, "kv-heads");
  if (shape.hidden % shape.heads != 0) {
    refuse("heads " + std::to_string(shape.heads) + " do not divide hidden " + std::to_string(shape.hidden) +
           " (every head has hidden/heads dimensions): choose a divisor");
  }
  if (shape.heads % shape.kv_heads != 0) {
    refuse("kv-heads " + std::to_string(shape.kv_heads) + " do not divide heads " + std::to_string(shape.heads) +
           " (query heads share key heads evenly): choose a divisor");
  }
  if (state_bytes_per_parameter * parameter_count(shape) >= 0x1p63) {
    refuse("layers " + std::to_string(shape.layers) + " with hidden " + std::to_string(shape.hidden) + ", ffn " +
           std::to_string(shape.ffn) + " and vocab " + std::to_string(shape.vocab) +
           " (sizes overflow 63 bits): choose less");
  }
}

Problem attention_problem(const ModelShape& shape, std::int64_t sequence, const Mask& mask) {
  Problem problem;
  problem.seq_q = problem.seq_kv = sequence;
  problem.heads = shape.heads;
  problem.kv_heads = shape.kv_heads;
  problem.head_dim = problem.value_dim = shape.head_dim();
  problem.mask = mask;
  return problem;
}

std::vector<Parameter> parameters_of(const ModelShape& shape) {
  std::vector<Parameter> all;
  const auto append = [&all](const std::string& prefix, const std::vector<Parameter>& some) {
    for (const Parameter& p : some) {
      all.push_back({prefix + p.name, p.rows, p.cols, p.initial, parameter_count(all)});
    }
  };
  append("", before_layers(shape));
  for (int layer = 0; layer < shape.layers; ++layer) append("layer" + std::to_string(layer) + ".", in_layer(shape));
  append("", after_layers(shape));
  return all;
}

std::size_t parameter_count(std::span<const Parameter> parameters) {
  return parameters.empty() ? 0 : parameters.back().offset + parameters.back().size();
}

double parameter_count(const ModelShape& shape) {
  return count_of(before_layers(shape)) + shape.layers * count_of(in_layer(shape)) + count_of(after_layers(shape));
}

template <class T>
std::vector<T> draw_parameters(std::span<const Parameter> parameters, std::uint64_t seed) {
  std::vector<T> values(parameter_count(parameters));
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    T* first = values.data() + parameters[p].offset;
    if (parameters[p].initial == Initial::one) {
      std::fill_n(first, parameters[p].size(), T(1));
      continue;
    }
    for (std::size_t i = 0; i < parameters[p].size(); ++i) {
      first[i] = static_cast<T>(static_cast<float>(weight_deviation * normal(seed, p, i)));
    }
  }
  return values;
}

template <class T>
Weights<T> weights_view(const ModelShape& shape, std::span<const Parameter> parameters, T* values) {
  std::size_t next = 0;
  const auto take = [&] {
    const Parameter& p = parameters[next++];
    return Matrix<T>{values + p.offset, p.rows, p.cols};
  };
  Weights<T> weights;
  weights.embedding = take();
  for (int layer = 0; layer < shape.layers; ++layer) {
    weights.layers.push_back({take(), take(), take(), take(), take(), take(), take(), take(), take()});
  }
  weights.final_gain = take();
  weights.head = take();
  DISTATTN_EXPECT(next == parameters.size());
  return weights;
}

template std::vector<float> draw_parameters(std::span<const Parameter>, std::uint64_t);
template std::vector<double> draw_parameters(std::span<const Parameter>, std::uint64_t);
template Weights<float> weights_view(const ModelShape&, std::span<const Parameter>, float*);
template Weights<double> weights_view(const ModelShape&, std::span<const Parameter>, double*);
template Weights<const float> weights_view(const ModelShape&, std::span<const Parameter>, const float*);
template Weights<const double> weights_view(const ModelShape&, std::span<const Parameter>, const double*);

}  // namespace distattn::step

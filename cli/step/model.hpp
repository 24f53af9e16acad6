#pragma once
/// The decoder that steps train: its shape, and its parameters as one flat run of numbers with names.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "distattn/index.hpp"
#include "distattn/problem.hpp"
#include "kernels/dense/matrix.hpp"

namespace distattn::step {

using kernels::dense::Matrix;

struct ModelShape {
  int layers = 2;
  std::int64_t hidden = 64;
  std::int64_t ffn = 176;
  std::int64_t vocab = 256;
  int heads = 4, kv_heads = 4;

  int head_dim() const { return static_cast<int>(hidden / heads); }
  std::int64_t kv_width() const { return hidden / heads * kv_heads; }
};

/// 8/3 of hidden, rounded up to a multiple of 8: as much work as the 4 · hidden of an ungated feed-forward part. Where
/// that passes 63 bits the largest size, which check() refuses.
constexpr std::int64_t usual_ffn(std::int64_t hidden) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return hidden > most / 4 ? most : 8 * ((hidden + 2) / 3);
}

/// Throws Error(usage) for sizes that are not positive, heads that do not divide, and bytes that overflow 63 bits.
void check(const ModelShape& shape);

/// The attention that every layer poses, of one sequence, in fp32.
Problem attention_problem(const ModelShape& shape, std::int64_t sequence, const Mask& mask);

enum class Initial : std::uint8_t { gaussian, one };  ///< N(0, 0.02); gains start at 1

/// One parameter: a matrix in the flat run, [in][out] for weights, [1][hidden] for gains.
struct Parameter {
  std::string name;
  std::int64_t rows = 0, cols = 0;
  Initial initial = Initial::gaussian;
  std::size_t offset = 0;

  std::size_t size() const { return index(rows * cols); }
};

/// In the order of the flat run: embedding, layers, final gain, head.
std::vector<Parameter> parameters_of(const ModelShape& shape);
std::size_t parameter_count(std::span<const Parameter> parameters);
/// The same of all parameters, for any shape with heads.
double parameter_count(const ModelShape& shape);

/// Values of all parameters. They depend on the seed, the parameter and the element only, not on ranks; always of
/// float precision, so that the float64 step starts from the same numbers.
template <class T>
std::vector<T> draw_parameters(std::span<const Parameter> parameters, std::uint64_t seed);

/// Names of a layer's part of the flat run; of weights and of gradients alike.
template <class T>
struct LayerWeights {
  Matrix<T> attention_gain, wq, wk, wv, wo;
  Matrix<T> ffn_gain, w1, w3, w2;
};

template <class T>
struct Weights {
  Matrix<T> embedding;
  std::vector<LayerWeights<T>> layers;
  Matrix<T> final_gain, head;
};

/// The flat run `values` seen as matrices.
template <class T>
Weights<T> weights_view(const ModelShape& shape, std::span<const Parameter> parameters, T* values);

}  // namespace distattn::step

#include "simt/attention_case.hpp"

#include <algorithm>
#include <cmath>

namespace simt {
namespace {

using kernels::Bf16;
using kernels::Fp16;

const kernels::StopFlag never{false};

kernels::Team& team() {
  static kernels::Team one(1);
  return one;
}

/// An array for each segment: `heads` × its tokens × dim.
template <class T>
std::vector<Array<T>> arrays(const std::vector<Run>& runs, std::int64_t heads, int dim, T value) {
  std::vector<Array<T>> made;
  for (const Run& run : runs) made.emplace_back(static_cast<std::size_t>(heads * run.count * dim), value);
  return made;
}

template <class T, class Sum>
Tensors<T, Sum> tensors(const AttentionCase& c) {
  const Sum nan = std::numeric_limits<Sum>::quiet_NaN();
  Tensors<T, Sum> made;
  made.q = arrays(c.queries, c.query_heads(), c.head_dim, T{});
  made.d_o = arrays(c.queries, c.query_heads(), c.value_dim, T{});
  made.k = arrays(c.keys, c.key_heads(), c.head_dim, T{});
  made.v = arrays(c.keys, c.key_heads(), c.value_dim, T{});
  made.largest.emplace_back(static_cast<std::size_t>(c.query_heads()), -std::numeric_limits<Sum>::infinity());
  made.o = arrays(c.queries, c.query_heads(), c.value_dim, nan);
  made.lse = arrays(c.queries, c.query_heads(), 1, nan);
  made.whole_lse = arrays(c.queries, c.query_heads(), 1, nan);
  if constexpr (std::is_same_v<Sum, float>) {
    constexpr std::uint16_t fp16_nan = 0x7e00;
    made.low = arrays(c.queries, c.query_heads(), 1, fp16_nan);
    made.whole_low = arrays(c.queries, c.query_heads(), 1, fp16_nan);
  }
  made.delta = arrays(c.queries, c.query_heads(), 1, nan);
  made.dq = arrays(c.queries, c.query_heads(), c.head_dim, nan);
  made.dk = arrays(c.keys, c.key_heads(), c.head_dim, nan);
  made.dv = arrays(c.keys, c.key_heads(), c.value_dim, nan);
  return made;
}

/// Of segment i.
template <class T>
kernels::Rows query_rows(const AttentionCase& c, std::vector<Array<T>>& arrays, std::size_t i, int dim) {
  return kernels::packed_rows(arrays[i].data(), c.heads.q_count, c.queries[i].count, dim);
}

}  // namespace

kernels::TileShape shape_of(const AttentionCase& c, DType dtype, double scale) {
  return {.dtype = dtype,
          .batch = c.batch,
          .heads = c.heads,
          .head_dim = c.head_dim,
          .value_dim = c.value_dim,
          .scores = {.scale = scale, .softcap = c.softcap, .dropout = c.dropout.probability, .max_logit = c.max_logit},
          .alibi_slopes = c.slopes.empty() ? nullptr : c.slopes.data(),
          .dropout = c.dropout.probability == 0 ? nullptr : &c.dropout,
          .shared_kv = c.shared_kv};
}

template <class T, class Sum>
void Tensors<T, Sum>::list_sides(const AttentionCase& c, bool backward) {
  bands.assign(c.queries.size() * c.keys.size(), {});
  sides.assign(c.queries.size(), {});
  for (std::size_t i = 0; i < c.queries.size(); ++i) {
    for (std::size_t j = 0; j < c.keys.size(); ++j) {
      auto& touching = bands[i * c.keys.size() + j];
      std::copy_if(c.bands.begin(), c.bands.end(), std::back_inserter(touching),
                   [&](const Band& band) { return distattn::touches(band, c.queries[i], c.keys[j]); });
      const auto rows = [&](auto& arrays, int dim) {
        return kernels::packed_rows(arrays[j].data(), c.heads.kv_count, c.keys[j].count, dim);
      };
      kernels::KeySide side{rows(k, c.head_dim), rows(v, c.value_dim), c.keys[j], touching};
      if (c.shared_kv) side.v = side.k;
      if (backward) {
        side.dk = rows(dk, c.head_dim);
        side.dv = c.shared_kv ? side.dk : rows(dv, c.value_dim);
        side.carry = c.carry || i > 0;  // the first operation that reaches a key starts its gradients
      }
      sides[i].push_back(side);
    }
  }
}

template <class T, class Sum>
std::vector<kernels::AttendArgs> Tensors<T, Sum>::forward(const AttentionCase& c, DType dtype, double scale) {
  list_sides(c, false);
  std::vector<kernels::AttendArgs> operations;
  for (std::size_t i = 0; i < c.queries.size(); ++i) {
    operations.push_back({.shape = shape_of(c, dtype, scale),
                          .q = query_rows(c, q, i, c.head_dim),
                          .queries = c.queries[i],
                          .keys = sides[i],
                          .o = query_rows(c, o, i, c.value_dim),
                          .lse = lse[i].data(),
                          .lse_low = low.empty() ? nullptr : low[i].data(),
                          .carry = c.carry,
                          .max_logit = c.max_logit ? largest[0].data() : nullptr});
  }
  return operations;
}

template <class T, class Sum>
std::vector<kernels::AttendBackwardArgs> Tensors<T, Sum>::backward(const AttentionCase& c, DType dtype, double scale) {
  list_sides(c, true);
  std::vector<kernels::AttendBackwardArgs> operations;
  for (std::size_t i = 0; i < c.queries.size(); ++i) {
    operations.push_back({.shape = shape_of(c, dtype, scale),
                          .q = query_rows(c, q, i, c.head_dim),
                          .d_o = query_rows(c, d_o, i, c.value_dim),
                          .lse = whole_lse[i].data(),
                          .lse_low = whole_low.empty() ? nullptr : whole_low[i].data(),
                          .delta = delta[i].data(),
                          .queries = c.queries[i],
                          .keys = sides[i],
                          .dq = query_rows(c, dq, i, c.head_dim),
                          .carry = c.carry});
  }
  return operations;
}

template <class T>
DType Attention<T>::dtype() {
  if constexpr (std::is_same_v<T, Bf16>) return DType::bf16;
  if constexpr (std::is_same_v<T, Fp16>) return DType::fp16;
  return DType::fp32;
}

template <class T>
Attention<T>::Attention(const AttentionCase& which, unsigned seed)
    : case_(which),
      scale_(which.scale_factor / std::sqrt(which.head_dim)),
      actual_(tensors<T, float>(which)),
      exact_(tensors<double, double>(which)) {
  draw(seed);
  compute_exactly();
}

namespace {

/// Of which the low part is no small share, so that it is missed where it is left out.
void split_statistic(double value, float& high, std::uint16_t& low) {
  high = kernels::rounded_to<Fp16>(value);
  low = kernels::rounded_to<Fp16>(value - static_cast<double>(high)).bits;
}

}  // namespace

template <class T>
void Attention<T>::draw(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto draw_into = [&](auto& elements, auto& exact) {
    for (std::size_t s = 0; s < elements.size(); ++s) {
      for (std::size_t i = 0; i < elements[s].size(); ++i) {
        elements[s][i] = kernels::rounded_to<std::decay_t<decltype(elements[s][i])>>(normal(random));
        exact[s][i] = static_cast<float>(elements[s][i]);
      }
    }
  };
  const auto fill = [&](auto& elements, auto& exact, float value) {
    for (std::size_t s = 0; s < elements.size(); ++s) {
      for (std::size_t i = 0; i < elements[s].size(); ++i) exact[s][i] = elements[s][i] = kernels::rounded_to<T>(value);
    }
  };
  draw_into(actual_.q, exact_.q);
  draw_into(actual_.k, exact_.k);
  draw_into(actual_.v, exact_.v);
  draw_into(actual_.d_o, exact_.d_o);
  if (case_.key_bias != 0) add_key_bias();
  if (case_.all != 0) {
    fill(actual_.q, exact_.q, case_.all);
    fill(actual_.k, exact_.k, case_.all);
    fill(actual_.v, exact_.v, 1);
    fill(actual_.d_o, exact_.d_o, 1);
    if (case_.key_step != 0) raise_keys();
  }
  if (!case_.carry) return;
  draw_into(actual_.o, exact_.o);
  draw_into(actual_.lse, exact_.lse);
  for (std::size_t s = 0; s < actual_.lse.size(); ++s) {
    for (std::size_t i = 0; i < actual_.lse[s].size(); ++i) {
      split_statistic(exact_.lse[s][i], actual_.lse[s][i], actual_.low[s][i]);
    }
    for (std::size_t i = 0; i < actual_.lse[s].size(); i += 5) {  // some rows carry nothing, whatever their o holds
      exact_.lse[s][i] = actual_.lse[s][i] = -INFINITY;
      actual_.low[s][i] = 0;
    }
  }
  draw_into(actual_.dq, exact_.dq);
  draw_into(actual_.dk, exact_.dk);
  draw_into(actual_.dv, exact_.dv);
}

template <class T>
void Attention<T>::raise_keys() {
  const auto dim = static_cast<std::size_t>(case_.head_dim);
  for (std::size_t s = 0; s < actual_.k.size(); ++s) {
    for (std::size_t i = 0; i < actual_.k[s].size(); ++i) {
      const auto key = static_cast<float>(case_.keys[s].at(static_cast<std::int64_t>(i / dim)));
      actual_.k[s][i] = kernels::rounded_to<T>(case_.all + case_.all * case_.key_step * key);
      exact_.k[s][i] = static_cast<float>(actual_.k[s][i]);
    }
  }
}

template <class T>
void Attention<T>::add_key_bias() {
  const auto dim = static_cast<std::size_t>(case_.head_dim);
  for (std::size_t s = 0; s < actual_.k.size(); ++s) {
    for (std::size_t row = 0; row < actual_.k[s].size(); row += dim) {
      const auto add = [&](std::size_t x, float bias) {
        actual_.k[s][row + x] = kernels::rounded_to<T>(static_cast<float>(actual_.k[s][row + x]) + bias);
        exact_.k[s][row + x] = static_cast<float>(actual_.k[s][row + x]);
      };
      add(dim / 16 - 1, case_.key_bias);
      add(dim / 2 + 8, -case_.key_bias / 2);
    }
  }
}

template <class T>
void Attention<T>::compute_exactly() {
  auto forward = exact_.forward(case_, DType::fp64, scale_);
  // The backward pass starts from a whole attention, which carries nothing.
  std::vector<std::vector<double>> whole_o;
  for (std::size_t s = 0; s < forward.size(); ++s) {
    auto whole = forward[s];
    auto& o = whole_o.emplace_back(exact_.o[s].size());
    whole.o.data = o.data();
    whole.lse = exact_.whole_lse[s].data();
    whole.carry = false;
    kernels::reference::attend({&whole, 1}, team(), never);
    for (std::size_t row = 0; row < exact_.delta[s].size(); ++row) {
      double sum = 0;
      for (auto x = row * static_cast<std::size_t>(case_.value_dim);
           x < (row + 1) * static_cast<std::size_t>(case_.value_dim); ++x) {
        sum += o[x] * exact_.d_o[s][x];
      }
      actual_.delta[s][row] = static_cast<float>(exact_.delta[s][row] = sum);
      split_statistic(exact_.whole_lse[s][row], actual_.whole_lse[s][row], actual_.whole_low[s][row]);
    }
  }
  kernels::reference::attend(forward, team(), never);
  kernels::reference::attend_backward(exact_.backward(case_, DType::fp64, scale_), team(), never);
}

template <class T>
std::vector<kernels::AttendArgs> Attention<T>::forward() {
  return actual_.forward(case_, dtype(), scale_);
}

template <class T>
std::vector<kernels::AttendBackwardArgs> Attention<T>::backward() {
  return actual_.backward(case_, dtype(), scale_);
}

template <class T>
void Attention<T>::clear_query_gradients() {
  if (case_.carry) return;
  for (auto& dq : actual_.dq) std::fill_n(dq.data(), dq.size(), 0.0f);
}

template <class T>
void Attention<T>::take_statistics() {
  const auto dim = static_cast<std::size_t>(case_.value_dim);
  for (std::size_t s = 0; s < actual_.lse.size(); ++s) {
    for (std::size_t row = 0; row < actual_.lse[s].size(); ++row) {
      double sum = 0;
      for (std::size_t x = row * dim; x < (row + 1) * dim; ++x) {
        sum += static_cast<double>(actual_.o[s][x]) * static_cast<float>(actual_.d_o[s][x]);
      }
      actual_.delta[s][row] = static_cast<float>(sum);
      actual_.whole_lse[s][row] = actual_.lse[s][row];
      actual_.whole_low[s][row] = actual_.low[s][row];
    }
  }
}

template <class T>
double Attention<T>::tolerance() const {
  distattn::Problem problem;
  problem.dtype = dtype();
  for (const Run& run : case_.queries) problem.seq_q += run.count;
  for (const Run& run : case_.keys) problem.seq_kv += run.count;
  return distattn::tolerance(problem, static_cast<std::int64_t>(case_.keys.size()));
}

template <class T>
double Attention<T>::forward_error() const {
  double worst = 0;
  for (std::size_t s = 0; s < actual_.o.size(); ++s) {
    worst = std::max(worst, worst_row(actual_.o[s].values(), exact_.o[s].values(), case_.value_dim));
    worst = std::max(worst, worst_statistic(actual_.lse[s].values(), actual_.low[s].values(), exact_.lse[s].values()));
  }
  const std::vector<std::uint16_t> no_low(actual_.largest[0].size());
  return std::max(worst, worst_statistic(actual_.largest[0].values(), no_low, exact_.largest[0].values()));
}

template <class T>
double Attention<T>::query_gradient_error() const {
  double worst = 0;
  for (std::size_t s = 0; s < actual_.dq.size(); ++s) {
    worst = std::max(worst, worst_row(actual_.dq[s].values(), exact_.dq[s].values(), case_.head_dim));
  }
  return worst;
}

template <class T>
double Attention<T>::mean_query_gradient_error() const {
  double error = 0, size = 0;
  for (std::size_t s = 0; s < actual_.dq.size(); ++s) {
    for (std::size_t i = 0; i < actual_.dq[s].size(); ++i) {
      error += std::pow(static_cast<double>(actual_.dq[s][i]) - exact_.dq[s][i], 2);
      size += std::pow(exact_.dq[s][i], 2);
    }
  }
  return std::sqrt(error / size);
}

template <class T>
double Attention<T>::key_gradients_error() const {
  double worst = 0;
  for (std::size_t s = 0; s < actual_.dk.size(); ++s) {
    worst = std::max(worst, worst_row(actual_.dk[s].values(), exact_.dk[s].values(), case_.head_dim));
    if (case_.shared_kv) continue;
    worst = std::max(worst, worst_row(actual_.dv[s].values(), exact_.dv[s].values(), case_.value_dim));
  }
  return worst;
}

namespace {

/// Square of the size that an element is taken to have at least: gradients of a single visible key are 0, and what
/// inputs of size 1 leave of them is rounding.
constexpr double smallest_row = 0.1;

}  // namespace

double worst_row(std::span<const float> actual, std::span<const double> exact, std::int64_t dim) {
  const auto width = static_cast<std::size_t>(dim);
  double all = 0;
  for (double value : exact) all += value * value;
  const double mean_row = exact.empty() ? 0 : all / static_cast<double>(exact.size() / width);
  double worst = 0;
  for (std::size_t row = 0; row < exact.size(); row += width) {
    double error = 0, size = 0;
    for (std::size_t x = row; x < row + width; ++x) {
      const double difference = static_cast<double>(actual[x]) - exact[x];
      error += difference * difference;
      size += exact[x] * exact[x];
    }
    if (!(error >= 0)) return INFINITY;
    worst = std::max(worst, std::sqrt(error / std::max({size, mean_row, smallest_row * static_cast<double>(dim)})));
  }
  return worst;
}

double worst_statistic(std::span<const float> actual, std::span<const std::uint16_t> low,
                       std::span<const double> exact) {
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (std::isinf(exact[i])) {
      if (static_cast<double>(actual[i]) != exact[i] || low[i] != 0) return INFINITY;
      continue;
    }
    const double rest = static_cast<double>(distattn::fp16_to_float(low[i]));
    const double error = std::abs(static_cast<double>(actual[i]) + rest - exact[i]);
    if (!(error >= 0)) return INFINITY;
    worst = std::max(worst, error);
  }
  return worst;
}

template class Attention<Bf16>;
template class Attention<Fp16>;
template class Attention<float>;

}  // namespace simt

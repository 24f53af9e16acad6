#include "kernels/reference/oracle_row.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "distattn/index.hpp"
#include "kernels/reference/loops.hpp"

namespace distattn::kernels::reference {
namespace {

/// Keys whose terms are summed by themselves before they are added to a row.
constexpr std::int64_t keys_a_sum = 128;

/// Of keys that are the same, and so are their scores: thrice this, which is what weight, LSE and the other keys may
/// do, is less than a whole, and results of zeros do not pass for a tie of large scores.
constexpr double most_of_a_tie = 0.25;

/// A score, and its derivative by the scaled product that it is made of.
Curve<double> curve_of(const Scores& scores, double product) {
  return with_scores<double>(scores, [&](const auto& map) { return map.curve(product); });
}

/// Derivatives below this may count for nothing.
constexpr double least_slope = 0x1p-98;

/// How far off the derivative of a score is where the scaled product that it is made of is off by `error`: it falls as
/// that grows.
double slope_error_of(const Scores& scores, double product, double slope, double error) {
  if (!std::isfinite(product)) return 0;
  const double nearer = std::max(0.0, std::abs(product) - error);
  return curve_of(scores, nearer).derivative - slope + std::min(slope, least_slope);
}

/// What a score rounds itself, in units of rounding.score: tanh is within six roundings.
constexpr double score_roundings = 1, capped_score_roundings = 4;

/// How much farther than those of a row on average the largest score of a head may be off: it is one of many, its terms
/// all have one sign, and no other score takes a part of its error.
constexpr double largest_roundings = 4;

/// What a weight of e^exponent gains when its score grows by `shift` and those that hold the row's weight fall by
/// `others`, of all the weight that there is.
double moved_by(double weight, double exponent, double shift, double others) {
  if (shift + others < 1.0 / 16) return weight * shift * (1 + 2 * (shift + others));  // a little more, and far quicker
  if (shift < 1) return std::exp(std::min(0.0, exponent + others)) * std::expm1(shift);
  return std::exp(std::min(0.0, exponent + others + shift));
}

}  // namespace

double finite_norm(const double* row, int dim) {
  Square squares = 0;
  for (int x = 0; x < dim; ++x) squares += std::isfinite(row[x]) ? square(row[x]) : 0;
  return root(squares);
}

void KeySums::add(const KeySums& other) {
  for (double KeySums::*each : {&KeySums::weights, &KeySums::weight_errors, &KeySums::dk_sizes, &KeySums::dv_sizes,
                                &KeySums::dk_lost, &KeySums::dv_lost, &KeySums::queries, &KeySums::query_norms}) {
    this->*each += other.*each;
  }
  for (Square KeySums::*each : {&KeySums::dk_errors, &KeySums::dv_errors, &KeySums::dk_terms, &KeySums::dv_terms}) {
    this->*each += other.*each;
  }
}

void KeySums::add_weight(double weight, double error, double d_o_norm) {
  queries += 1;
  if (!std::isfinite(weight)) return;
  weights += weight;
  weight_errors += error;
  dv_errors += square(error * d_o_norm);
  dv_sizes += weight * d_o_norm;
  dv_terms += square(weight * d_o_norm);
}

KeyGradients::KeyGradients(std::int64_t keys, int head_dim, int value_dim)
    : dk(index(keys * head_dim)),
      dv(index(keys * value_dim)),
      alike(dk.size()),
      sums(index(keys)),
      head_dim_(head_dim),
      value_dim_(value_dim),
      block_dk_(dk.size()),
      block_dv_(dv.size()),
      touched_{keys, 0} {}

void KeyGradients::clear() {
  std::fill(dk.begin(), dk.end(), 0.0);
  std::fill(dv.begin(), dv.end(), 0.0);
  std::fill(alike.begin(), alike.end(), 0.0);
  std::fill(sums.begin(), sums.end(), KeySums());
}

void KeyGradients::flush() {
  if (touched_.empty()) return;
  const auto move = [&](std::vector<double>& from, std::vector<double>& into, int dim) {
    for (std::int64_t i = touched_.begin * dim; i < touched_.end * dim; ++i) {
      const auto at = index(i);
      into[at] += from[at];
      from[at] = 0;
    }
  };
  move(block_dk_, dk, head_dim_);
  move(block_dv_, dv, value_dim_);
  touched_ = {std::ssize(sums), 0};
}

void KeyGradients::add(const KeyGradients& other, IndexRange keys) {
  add_scaled(dk.data() + keys.begin * head_dim_, 1.0, other.dk.data() + keys.begin * head_dim_,
             static_cast<int>(keys.end - keys.begin) * head_dim_);
  add_scaled(alike.data() + keys.begin * head_dim_, 1.0, other.alike.data() + keys.begin * head_dim_,
             static_cast<int>(keys.end - keys.begin) * head_dim_);
  add_scaled(dv.data() + keys.begin * value_dim_, 1.0, other.dv.data() + keys.begin * value_dim_,
             static_cast<int>(keys.end - keys.begin) * value_dim_);
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    sums[index(j)].add(other.sums[index(j)]);
  }
}

void OracleRow::compute(OracleQuery& query, std::span<const IndexRange> seen, KeyGradients* gradients) {
  attend(query, seen);
  if (*query.lse == -INFINITY) return;
  bound_forward(query);
  if (gradients != nullptr) differentiate(query, *gradients);
}

void OracleRow::attend(OracleQuery& query, std::span<const IndexRange> seen) {
  pairs_.clear();
  double top = query.sink;
  for (const IndexRange& range : seen) {
    for (std::int64_t j = range.begin; j < range.end; ++j) {
      const double product = keys_.scores.scale * dot<double>(query.q, keys_.k + j * keys_.head_dim, keys_.head_dim);
      const auto [without_bias, slope] = curve_of(keys_.scores, product);
      const double score = without_bias + bias_of<double>(query.slope, query.position, query.first_key + j);
      if (score > top || score != score) top = score;
      if (score > query.top || score != score) query.top = score;
      const double kept = query.dropout.limit == 0 ? 1 : query.dropout.factor(query.position, query.first_key + j);
      pairs_.push_back({j, product, score, without_bias, slope, kept});
    }
  }
  const int dim = keys_.value_dim;
  std::fill_n(query.o, dim, 0.0);
  *query.lse = top;
  if (top == -INFINITY) return;
  block_.resize(index(dim));
  double sum = std::exp(query.sink - top), block_sum = 0;
  const auto add_block = [&] {
    sum += block_sum;
    add_scaled(query.o, 1.0, block_.data(), dim);
    std::fill(block_.begin(), block_.end(), block_sum = 0);
  };
  std::fill(block_.begin(), block_.end(), 0.0);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    pairs_[i].weight = std::exp(pairs_[i].score - top);
    block_sum += pairs_[i].weight;
    add_scaled(block_.data(), pairs_[i].weight * pairs_[i].kept, keys_.v + pairs_[i].key * dim, dim);
    if ((i + 1) % keys_a_sum == 0) add_block();
  }
  add_block();
  for (int x = 0; x < dim; ++x) query.o[x] /= sum;
  *query.lse = top + std::log(sum);
  for (Pair& pair : pairs_) pair.weight /= sum;
}

/// How far rounding moves each weight: what it rounds itself, and what errors of scores take from one key and give to
/// the others. Where one key leads by more than scores round there is nothing to move.
void OracleRow::bound_weights(OracleQuery& query) {
  const double of_query = std::abs(keys_.scores.scale) * finite_norm(query.q, keys_.head_dim);
  const Pair* top = nullptr;
  const bool capped = !is_linear(keys_.scores);
  const double of_score = capped ? capped_score_roundings : score_roundings;
  // A bias rounds, and its sum with the score.
  const auto bias_sizes = [](const Pair& pair) {
    return pair.score == pair.without_bias ? 0 : std::abs(pair.score) + std::abs(pair.score - pair.without_bias);
  };
  double of_scores = 0, own = 0, moved = 0, weights = 0;
  for (Pair& pair : pairs_) {
    if (!pair.counts()) continue;
    pair.shift = rounding_.score * (of_score * std::abs(pair.without_bias) + bias_sizes(pair) +
                                    pair.slope * of_query * keys_.k_norms[pair.key] / 4);
    if (capped) {
      const double of_product = rounding_.score * (std::abs(pair.scaled) + of_query * keys_.k_norms[pair.key] / 4);
      pair.slope_error =
          pair.slope * of_score * rounding_.score + slope_error_of(keys_.scores, pair.scaled, pair.slope, of_product);
    }
    of_scores += pair.weight * pair.shift;
    query.top_allowed = std::max(query.top_allowed, pair.score + largest_roundings * pair.shift - query.top);
    if (top == nullptr || pair.score > top->score) top = &pair;
  }
  const double of_lse = rounding_.score * (std::isfinite(*query.lse) ? std::abs(*query.lse) : 0);
  const auto leads = [&](const Pair& pair) { return pair.counts() && is_same_key(pair, *top); };
  const bool is_tie = std::count_if(pairs_.begin(), pairs_.end(), leads) > 1;
  // A row's largest score is a number: where its lse rounds to that, it is no farther off than the two are apart.
  const double apart = top == nullptr ? 0 : std::min(of_lse, -std::log(top->weight));
  const double of_row = rounding_.weight + (is_tie ? std::min(most_of_a_tie, apart) : apart);
  for (Pair& pair : pairs_) {
    if (!pair.counts()) continue;
    pair.own = pair.weight * of_row + std::min(pair.weight, rounding_.underflow);
    pair.moved = moved_by(pair.weight, pair.score - *query.lse, pair.shift, of_scores);
    if (is_tie && leads(pair)) pair.moved = std::min(pair.moved, most_of_a_tie * pair.weight);
    own += pair.own;
    moved += pair.moved;
    weights += pair.weight;
  }
  weight_errors_ = 0;
  for (Pair& pair : pairs_) {
    if (!pair.counts()) continue;
    const double p = pair.weight, others = std::max(0.0, moved - pair.moved);
    pair.error = pair.own + (1 - p) * pair.moved + p * std::min(1.0, others);
    weight_errors_ += pair.error;
  }
  // Nothing cancels in LSE, and nothing that it sums is rounded to 16 bits.
  own -= weights * (rounding_.weight - rounding_.exponential);
  lse_error_ = rounding_.exponential + of_scores + of_lse;
  query.lse_allowed = rounding_.exponential + 2.5 * (own + of_scores + of_lse);
}

/// What a row may lose of a weight that underflows, or would if it came out a little smaller. All that do are lost
/// together, so that this adds up, where rounding goes either way.
double OracleRow::lost_of(const Pair& pair) const {
  return pair.counts() && pair.weight < 2 * rounding_.underflow ? pair.weight : 0;
}

/// Equal keys have equal scores, however these round.
bool OracleRow::is_same_key(const Pair& a, const Pair& b) const {
  const double* const row = keys_.k + a.key * keys_.head_dim;
  return a.score == b.score && std::equal(row, row + keys_.head_dim, keys_.k + b.key * keys_.head_dim);
}

/// o = Σ P v: errors of weights are independent of each other, but for what they have in common, which is a share of o.
/// That of a score moves o by its weight times v − o, which is at most (1 − P) |v| and all that the other keys add.
void OracleRow::bound_forward(OracleQuery& query) {
  bound_weights(query);
  Square errors = 0, terms = 0;
  double sizes = 0, lost = 0;
  for (const Pair& pair : pairs_) {
    if (pair.counts()) sizes += pair.weight * pair.kept * keys_.v_norms[pair.key];
  }
  for (const Pair& pair : pairs_) {
    const double p = pair.weight, size = pair.kept * keys_.v_norms[pair.key];
    if (!pair.counts()) continue;
    const double from_o = (1 - p) * size + std::max(0.0, sizes - p * size);
    errors += square(pair.own * size + pair.moved * from_o);
    terms += square(p * size);
    lost += lost_of(pair) * size;
  }
  o_least_ = (rounding_.least * (4 + static_cast<double>(pairs_.size())) + rounding_.sent) * std::sqrt(keys_.value_dim);
  query.o_allowed = root(errors + square(weight_errors_ * finite_norm(query.o, keys_.value_dim))) +
                    rounding_.sum * sizes + lost + o_least_;
  query.o_terms = root(terms);
}

/// delta = dO·o = Σ P (dO·v), off by the errors of the weights that made o and by its own sum.
double OracleRow::bound_delta(const OracleQuery& query, double& delta, double& delta_size) {
  const int dim = keys_.value_dim;
  delta = dot<double>(query.o, query.d_o, dim);
  Square squares = 0;
  for (int x = 0; x < dim; ++x) squares += square(query.o[x] * query.d_o[x]);
  delta_size = std::max(std::abs(delta), root(squares));
  const double d_o_norm = finite_norm(query.d_o, dim), of_query = d_o_norm / std::sqrt(dim);
  Square errors = 0;
  double sizes = 0, lost = 0;
  for (Pair& pair : pairs_) {
    pair.product = pair.kept * dot<double>(query.d_o, keys_.v + pair.key * dim, dim);
    pair.size = std::abs(pair.product) + pair.kept * of_query * keys_.v_norms[pair.key];
    errors += square(pair.own * pair.product) + square(pair.moved * (pair.product - delta));
    sizes += pair.weight * pair.size;
    lost += lost_of(pair) * std::abs(pair.product);
  }
  return root(errors) + lost + rounding_.sum * sizes + rounding_.delta * delta_size + o_least_ * d_o_norm +
         rounding_.least * dim;
}

/// dS = P (dP − delta), dQ = scale Σ dS k, dK = scale Σ dS q, dV = Σ P dO. delta's error is one for all keys of a
/// query.
void OracleRow::differentiate(OracleQuery& query, KeyGradients& gradients) {
  const int head_dim = keys_.head_dim, value_dim = keys_.value_dim;
  double delta = 0, delta_size = 0;
  const double delta_error = bound_delta(query, delta, delta_size);
  const double q_norm = finite_norm(query.q, head_dim), d_o_norm = finite_norm(query.d_o, value_dim);
  std::vector<double>& block = block_;
  block.assign(index(head_dim), 0.0);
  alike_.assign(index(head_dim), 0.0);
  const double dot_alike = rounding_.dot + rounding_.chain * value_dim;
  std::fill_n(query.dq, head_dim, 0.0);
  Square errors = 0, terms = 0;
  double sizes = 0, keys = 0, weighted_keys = 0, lost = 0;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& pair = pairs_[i];
    const double p = pair.weight, ds = p * (pair.product - delta), size = keys_.k_norms[pair.key];
    const double d_product = ds * pair.slope, scaled = keys_.scores.scale * d_product;
    add_scaled(block.data(), scaled, keys_.k + pair.key * head_dim, head_dim);
    add_scaled(gradients.block_dk_.data() + pair.key * head_dim, scaled, query.q, head_dim);
    add_scaled(gradients.block_dv_.data() + pair.key * value_dim, p * pair.kept, query.d_o, value_dim);
    gradients.touched_ = {std::min(gradients.touched_.begin, pair.key), std::max(gradients.touched_.end, pair.key + 1)};
    if ((i + 1) % keys_a_sum == 0 || i + 1 == pairs_.size()) {
      add_scaled(query.dq, 1.0, block.data(), head_dim);
      std::fill(block.begin(), block.end(), 0.0);
    }
    KeySums& sums = gradients.sums[index(pair.key)];
    sums.add_weight(p * pair.kept, pair.error * pair.kept, d_o_norm);
    sums.dv_lost += lost_of(pair) * pair.kept * d_o_norm;
    if (!std::isfinite(ds)) continue;  // nor is what it reaches
    const double most = std::min(1.0, p + pair.error);
    const double of_ds =
        pair.error * std::abs(pair.product - delta) + most * (rounding_.dot * pair.size + rounding_.least * value_dim);
    const double error = pair.slope * of_ds + pair.slope_error * (std::abs(ds) + of_ds) + rounding_.element;
    errors += square(error * size);
    sizes += std::abs(d_product) * size;
    keys += size;
    weighted_keys += pair.slope * most * size;
    terms += square(d_product * size);
    const double alike = pair.slope * most * (dot_alike * pair.size + rounding_.delta * delta_size);
    add_scaled(gradients.alike.data() + pair.key * head_dim, alike, query.q, head_dim);
    add_scaled(alike_.data(), pair.slope * most * pair.size, keys_.k + pair.key * head_dim, head_dim);
    sums.dk_errors += (square(error) + square(pair.slope * most * delta_error)) * square(q_norm);
    sums.dk_sizes += std::abs(d_product) * q_norm;
    const double of_lost = pair.slope * lost_of(pair) * std::abs(pair.product - delta);
    lost += of_lost * size;
    sums.dk_lost += of_lost * q_norm;
    sums.dk_terms += (square(d_product) + square(pair.slope * p * delta_size)) * square(q_norm);
    sums.query_norms += q_norm;
  }
  const double sink_weight = std::exp(query.sink - *query.lse);
  query.d_sink = -sink_weight * delta;
  query.d_sink_allowed = sink_weight * (delta_error + rounding_.dot * delta_size + lse_error_ * std::abs(delta)) +
                         std::min(sink_weight, rounding_.underflow) * std::abs(delta);
  const double scale = std::abs(keys_.scores.scale);
  query.dq_allowed =
      scale * (root(errors) + dot_alike * finite_norm(alike_.data(), head_dim) + delta_error * weighted_keys +
               rounding_.sum * sizes + lost) +
      rounding_.least * keys * (1 + scale) + weight_errors_ * finite_norm(query.dq, head_dim) +
      (rounding_.least * (4 + static_cast<double>(pairs_.size())) + rounding_.sent) * std::sqrt(head_dim);
  query.dq_terms = scale * root(terms + square(delta_size * weighted_keys));
}

}  // namespace distattn::kernels::reference

#include "kernels/reference/oracle.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "distattn/index.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/reference/oracle_row.hpp"

namespace distattn::kernels::reference {

namespace {

const StopFlag never{false};

/// Queries that a thread takes at a time, and whose terms of a key's gradient are summed by themselves.
constexpr std::int64_t block_queries = 128;

// [batch][head][token][dim] of a tensor whose axes are batch, sequence, heads, dim.
std::array<std::int64_t, 4> by_head(const std::array<std::int64_t, 4>& axes) {
  return {axes[0], axes[2], axes[1], axes[3]};
}

/// An input in float64, head by head, and the norms of its rows.
struct Packed {
  Packed(const ConstTensorView& tensor, Team& team) : heads(tensor.heads()), tokens(tensor.sequence()), dim(0) {
    if (tensor.data == nullptr) return;
    dim = static_cast<int>(tensor.head_dim());
    values.resize(index(tensor.batch() * tokens * heads * dim));
    const RearrangeArgs args{.shape = by_head(tensor.shape),
                             .into_dtype = DType::fp64,
                             .into = values.data(),
                             .into_strides = {heads * tokens * dim, tokens * dim, dim, 1},
                             .from_dtype = tensor.dtype,
                             .from = tensor.data,
                             .from_strides = by_head(tensor.strides)};
    rearrange({&args, 1}, team, never);
    norms.resize(index(tensor.batch() * tokens * heads));
    for (std::size_t row = 0; row < norms.size(); ++row) {
      norms[row] = finite_norm(values.data() + row * index(dim), dim);
    }
  }

  std::int64_t row(std::int64_t b, std::int64_t head, std::int64_t token) const {
    return (b * heads + head) * tokens + token;
  }
  const double* at(std::int64_t row) const { return values.data() + row * dim; }

  std::int64_t heads, tokens;
  int dim;
  std::vector<double> values, norms;
};

/// The bands that reach each block of queries: none is looked at where it shows nothing.
std::vector<std::vector<Band>> bands_by_block(const WholeAttention& attention) {
  const std::int64_t blocks = (attention.queries.count + block_queries - 1) / block_queries;
  std::vector<std::vector<Band>> lists(index(blocks));
  for (const Band& band : attention.bands) {
    const IndexRange rows = band_rows(band, attention.queries);
    if (rows.empty()) continue;
    for (std::int64_t block = rows.begin / block_queries; block <= (rows.end - 1) / block_queries; ++block) {
      lists[index(block)].push_back(band);
    }
  }
  return lists;
}

class Oracle {
 public:
  Oracle(const WholeAttention& attention, Team& team, const Rounding& rounding)
      : attention_(attention),
        team_(team),
        rounding_(rounding),
        q_(attention.q, team),
        k_(attention.k, team),
        v_(attention.v, team),
        d_o_(attention.d_o, team),
        bands_(bands_by_block(attention)) {}

  Exact compute() {
    const std::int64_t rows = attention_.q.batch() * q_.heads * q_.tokens;
    const std::int64_t key_rows = attention_.q.batch() * k_.heads * k_.tokens;
    resize(exact_.o, exact_.o_norms, rows, v_.dim);
    resize(exact_.lse, exact_.lse_norms, rows, 1);
    resize(tops_, top_norms_, rows, 1);
    if (has_sinks() && has_gradients()) resize(d_sinks_, d_sink_norms_, rows, 1);
    if (has_gradients()) {
      resize(exact_.dq, exact_.dq_norms, rows, q_.dim);
      resize(exact_.dk, exact_.dk_norms, key_rows, k_.dim);
      resize(exact_.dv, exact_.dv_norms, key_rows, v_.dim);
      // Of a thread without work they would be as large as of the others.
      const std::int64_t working = std::min<std::int64_t>(team_.size(), items_of_group());
      for (std::int64_t thread = 0; thread < std::max<std::int64_t>(1, working); ++thread) {
        gradients_.emplace_back(k_.tokens, k_.dim, v_.dim);
      }
    }
    for (std::int64_t b = 0; b < attention_.q.batch(); ++b) {
      for (std::int64_t kv = 0; kv < k_.heads; ++kv) compute_group(b, kv);
    }
    find_tops();
    if (has_sinks() && has_gradients()) sum_sinks();
    return std::move(exact_);
  }

 private:
  bool has_gradients() const { return d_o_.dim != 0; }
  bool has_sinks() const { return attention_.scores.sink_logits; }

  /// Blocks of queries of the query heads of a key head.
  std::int64_t items_of_group() const { return q_.heads / k_.heads * std::ssize(bands_); }

  static void resize(std::vector<double>& values, RowNorms& norms, std::int64_t rows, int dim) {
    values.resize(index(rows * dim));
    norms.allowed.resize(index(rows));
    norms.terms.resize(index(rows));
  }

  /// The query heads of one key head. Which thread takes which rows is fixed, and so is the order of every sum.
  void compute_group(std::int64_t b, std::int64_t kv) {
    const std::int64_t row = k_.row(b, kv, 0), group = q_.heads / k_.heads, items = items_of_group();
    const OracleKeys keys{k_.at(row), v_.at(row), k_.norms.data() + row, v_.norms.data() + row,
                          k_.dim,     v_.dim,     attention_.scores};
    team_.run([&](int thread) {
      OracleRow oracle(keys, rounding_);
      KeyGradients* const gradients = has_gradients() && thread < items ? &gradients_[index(thread)] : nullptr;
      if (gradients != nullptr) gradients->clear();
      for (std::int64_t item = thread; item < items; item += team_.size()) {
        compute_block(oracle, b, kv * group + item % group, item / group, gradients);
        if (gradients != nullptr) gradients->flush();
      }
    });
    if (!has_gradients()) return;
    team_.run([&](int thread) {
      const IndexRange share{k_.tokens * thread / team_.size(), k_.tokens * (thread + 1) / team_.size()};
      for (std::size_t other = 1; other < gradients_.size(); ++other) gradients_[0].add(gradients_[other], share);
      for (std::int64_t j = share.begin; j < share.end; ++j) finish_key(b, kv, j);
    });
  }

  void compute_block(OracleRow& oracle, std::int64_t b, std::int64_t head, std::int64_t block,
                     KeyGradients* gradients) {
    std::vector<IndexRange> seen;
    const std::int64_t end = std::min((block + 1) * block_queries, q_.tokens);
    for (std::int64_t i = block * block_queries; i < end; ++i) {
      seen.clear();
      for (const Band& band : bands_[index(block)]) {
        const IndexRange range = band_keys(band, attention_.queries.at(i), attention_.keys);
        if (!range.empty()) seen.push_back(range);
      }
      const std::int64_t in = q_.row(b, head, i), out = (b * q_.tokens + i) * q_.heads + head;
      OracleQuery query{.q = q_.at(in),
                        .d_o = has_gradients() ? d_o_.at(in) : nullptr,
                        .o = exact_.o.data() + out * v_.dim,
                        .lse = exact_.lse.data() + in,
                        .dq = has_gradients() ? exact_.dq.data() + out * q_.dim : nullptr};
      query.position = attention_.queries.at(i);
      query.first_key = attention_.keys.start;
      if (!attention_.alibi_slopes.empty()) query.slope = attention_.alibi_slopes[index(head)];
      if (attention_.dropout != nullptr) {
        query.dropout = HeadDropout(*attention_.dropout, attention_.first_batch + b, attention_.first_head + head);
      }
      if (has_sinks()) query.sink = attention_.sink_logits[index(head)];
      oracle.compute(query, seen, gradients);
      tops_[index(in)] = query.top;
      set(top_norms_, in, query.top_allowed, std::abs(query.top));
      set(exact_.o_norms, out, query.o_allowed, query.o_terms);
      set(exact_.lse_norms, out, query.lse_allowed, std::isfinite(*query.lse) ? std::abs(*query.lse) : 0);
      if (has_gradients()) set(exact_.dq_norms, out, query.dq_allowed, query.dq_terms);
      if (has_gradients() && has_sinks()) {
        d_sinks_[index(in)] = query.d_sink;
        set(d_sink_norms_, in, query.d_sink_allowed, std::abs(query.d_sink));
      }
    }
  }

  /// Any row's score that comes near the largest may turn out to be it.
  void find_tops() {
    const std::int64_t heads = attention_.q.batch() * q_.heads;
    resize(exact_.max_logit, exact_.max_norms, heads, 1);
    for (std::int64_t head = 0; head < heads; ++head) {
      double top = -INFINITY, most = -INFINITY;
      for (std::int64_t row = head * q_.tokens; row < (head + 1) * q_.tokens; ++row) {
        const auto at = index(row);
        if (tops_[at] > top || tops_[at] != tops_[at]) top = tops_[at];
        most = std::max(most, tops_[at] + top_norms_.allowed[at]);
      }
      exact_.max_logit[index(head)] = top;
      double allowed = std::isfinite(top) ? most - top : 0;
      for (std::int64_t row = head * q_.tokens; row < (head + 1) * q_.tokens; ++row) {
        const auto at = index(row);
        if (tops_[at] == top) allowed = std::max(allowed, top_norms_.allowed[at]);
      }
      set(exact_.max_norms, head, allowed, std::abs(top));
    }
  }

  /// Of all rows of a head: their errors are independent, and their sum rounds by itself.
  void sum_sinks() {
    const std::int64_t heads = attention_.q.batch() * q_.heads;
    resize(exact_.dsink_logits, exact_.dsink_norms, heads, 1);
    for (std::int64_t head = 0; head < heads; ++head) {
      Square errors = 0, terms = 0;
      double sizes = 0;
      const double least = rounding_.least * static_cast<double>(q_.tokens);  // each row's sum may be another rank's
      for (std::int64_t row = head * q_.tokens; row < (head + 1) * q_.tokens; ++row) {
        const auto at = index(row);
        exact_.dsink_logits[index(head)] += d_sinks_[at];
        errors += square(d_sink_norms_.allowed[at]);
        sizes += d_sink_norms_.terms[at];
        terms += square(d_sink_norms_.terms[at]);
      }
      set(exact_.dsink_norms, head, root(errors) + rounding_.sum * sizes + rounding_.sent + least, root(terms));
    }
  }

  /// Nothing is allowed to, and no size is known of, rows that are not finite.
  static void set(RowNorms& norms, std::int64_t row, double allowed, double terms) {
    norms.allowed[index(row)] = std::isnan(allowed) ? 0 : allowed;
    norms.terms[index(row)] = std::isnan(terms) ? 0 : terms;
  }

  void finish_key(std::int64_t b, std::int64_t kv, std::int64_t j) {
    const KeyGradients& all = gradients_.front();
    const KeySums& sums = all.sums[index(j)];
    const std::int64_t out = (b * k_.tokens + j) * k_.heads + kv;
    double* const dk = std::copy_n(all.dk.data() + j * k_.dim, k_.dim, exact_.dk.data() + out * k_.dim) - k_.dim;
    double* const dv = std::copy_n(all.dv.data() + j * v_.dim, v_.dim, exact_.dv.data() + out * v_.dim) - v_.dim;
    const auto common = [&](const double* gradient, int dim) {
      return sums.weights > 0 ? sums.weight_errors * (finite_norm(gradient, dim) / sums.weights) : 0;
    };
    const double of_alike = finite_norm(all.alike.data() + j * k_.dim, k_.dim);
    const double scale = std::abs(attention_.scores.scale), least = rounding_.least;
    set(exact_.dk_norms, out,
        scale * (root(sums.dk_errors) + of_alike + rounding_.sum * sums.dk_sizes + sums.dk_lost) +
            least * sums.query_norms * (1 + scale) + common(dk, k_.dim) +
            (least * (4 + sums.queries) + rounding_.sent) * std::sqrt(k_.dim),
        scale * root(sums.dk_terms));
    set(exact_.dv_norms, out,
        std::hypot(root(sums.dv_errors), common(dv, v_.dim)) + rounding_.sum * sums.dv_sizes + sums.dv_lost +
            (least * (4 + sums.queries) + rounding_.sent) * std::sqrt(v_.dim),
        root(sums.dv_terms));
  }

  const WholeAttention& attention_;
  Team& team_;
  const Rounding& rounding_;
  const Packed q_, k_, v_, d_o_;
  const std::vector<std::vector<Band>> bands_;
  std::vector<KeyGradients> gradients_;
  Exact exact_;
  std::vector<double> tops_;  // by row, the largest score
  RowNorms top_norms_;
  std::vector<double> d_sinks_;  // by row, of queries
  RowNorms d_sink_norms_;
};

}  // namespace

Exact compute_exactly(const WholeAttention& attention, Team& team, const Rounding& rounding) {
  return Oracle(attention, team, rounding).compute();
}

}  // namespace distattn::kernels::reference

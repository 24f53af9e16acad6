#pragma once
/// The oracle's arithmetic: one query row and what it adds to the keys that it sees (docs/mathematics.md has the
/// formulas, and under "How far rounding may go" those of the norms).

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/dropout.hpp"
#include "kernels/reference/oracle.hpp"

namespace distattn::kernels::reference {

/// L2 norm of the elements that are finite: one infinity shall not excuse what lies beside it.
double finite_norm(const double* row, int dim);

/// Rows of one sequence and key head, and their norms; `d_o` null without gradients.
struct OracleKeys {
  const double *k, *v;
  const double *k_norms, *v_norms;
  int head_dim, value_dim;
  Scores scores;
};

/// A query row: what it is made of, and where its results go. Without gradients dq is null.
struct OracleQuery {
  const double *q, *d_o;
  double *o, *lse, *dq;
  std::int64_t position = 0, first_key = 0;  ///< of the query, and of the first key
  double slope = 0;                          ///< of the position bias
  double top = -INFINITY, top_allowed = 0;   ///< the largest score, and how far off it may be
  HeadDropout dropout{};
  double sink = -INFINITY;  ///< logit of the row's term without a value
  double d_sink = 0, d_sink_allowed = 0;
  double o_allowed = 0, o_terms = 0, lse_allowed = 0, dq_allowed = 0, dq_terms = 0;
};

/// What the queries so far add to one key's gradients, beside the gradients themselves.
struct KeySums {
  double weights = 0, weight_errors = 0;  ///< P and its errors
  Square dk_errors = 0, dv_errors = 0;    ///< of independent errors
  double dk_sizes = 0, dv_sizes = 0;      ///< magnitudes of what is added
  Square dk_terms = 0, dv_terms = 0;      ///< of these
  double dk_lost = 0, dv_lost = 0;        ///< magnitudes of terms whose weights underflow
  double queries = 0, query_norms = 0;    ///< how many see the key, and how large they are

  void add_weight(double weight, double error, double d_o_norm);
  void add(const KeySums& other);
};

/// One thread's share of the gradients of a key head's keys. Sums over blocks of queries, and then over blocks.
class KeyGradients {
 public:
  KeyGradients(std::int64_t keys, int head_dim, int value_dim);
  void clear();
  /// Ends a block of queries.
  void flush();
  void add(const KeyGradients& other, IndexRange keys);

  std::vector<double> dk, dv;
  /// Σ q times errors of P (dP − delta): what they come to where all rows are rounded alike, as equal rows are.
  std::vector<double> alike;
  std::vector<KeySums> sums;

 private:
  friend class OracleRow;
  int head_dim_, value_dim_;
  std::vector<double> block_dk_, block_dv_;
  IndexRange touched_;
};

/// Computes rows one after the other; keeps its scratch.
class OracleRow {
 public:
  OracleRow(const OracleKeys& keys, const Rounding& rounding) : keys_(keys), rounding_(rounding) {}

  /// The key ranges that the query sees, of which no two share a key. `gradients` null: forward only.
  void compute(OracleQuery& query, std::span<const IndexRange> seen, KeyGradients* gradients);

 private:
  struct Pair {
    std::int64_t key;
    double scaled;  ///< product of query and key
    double score, without_bias;
    double slope;               ///< derivative of the score by the scaled product
    double kept = 1;            ///< what dropout makes of a weight of 1
    double weight = 0;          ///< P
    double shift = 0;           ///< how far off the score may be
    double own = 0, moved = 0;  ///< what P rounds itself; what the score's error adds before P is normalised
    double error = 0;           ///< how far off P may be
    bool counts() const { return weight >= 0 && std::isfinite(score); }

    double slope_error = 0;        ///< how far off the slope may be
    double product = 0, size = 0;  ///< dO·v, and how large what it sums is
  };

  void attend(OracleQuery& query, std::span<const IndexRange> seen);
  double lost_of(const Pair& pair) const;
  bool is_same_key(const Pair& a, const Pair& b) const;
  void bound_weights(OracleQuery& query);
  void bound_forward(OracleQuery& query);
  double bound_delta(const OracleQuery& query, double& delta, double& delta_size);
  void differentiate(OracleQuery& query, KeyGradients& gradients);

  const OracleKeys& keys_;
  const Rounding& rounding_;
  std::vector<Pair> pairs_;
  std::vector<double> block_;
  double weight_errors_ = 0;   ///< of the row's weights together
  double lse_error_ = 0;       ///< how far off the row's log-sum-exp may be, and with it the weight of its sink
  double o_least_ = 0;         ///< what o may be off by however small it is
  std::vector<double> alike_;  ///< Σ P (size of dO·v) k, as in KeyGradients
};

}  // namespace distattn::kernels::reference

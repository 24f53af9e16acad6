#include "cli/tools/oracle.hpp"

#include <cmath>

#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "distattn/mask.hpp"
#include "kernels/reference/oracle.hpp"

namespace distattn {
namespace {

/// What of dV belongs to the beginning of dK: k holds the values.
void add_values_to_keys(const Problem& problem, ExpectedResult& expected) {
  const auto value_dim = index(problem.value_dim), head_dim = index(problem.head_dim);
  std::vector<double>&dk = expected.exact.dk, &dv = expected.exact.dv;
  for (std::size_t row = 0; row < dv.size() / value_dim; ++row) {
    for (std::size_t x = 0; x < value_dim; ++x) dk[row * head_dim + x] += dv[row * value_dim + x];
    expected.dk.allowed[row] += expected.dv.allowed[row];
    expected.dk.terms[row] = std::hypot(expected.dk.terms[row], expected.dv.terms[row]);
  }
}

}  // namespace

ExpectedResult expected_attention(const Problem& problem, const Rounding& rounding, const ConstTensorView& q,
                                  const ConstTensorView& k, const ConstTensorView& v, const ConstTensorView& d_o,
                                  int threads, std::span<const double> sink_logits, const DrawnFrom& drawn) {
  const auto bands = bands_of(problem.mask);
  const kernels::Dropout dropout{.probability = problem.scores.dropout,
                                 .seed = drawn.seed,
                                 .offset = drawn.offset,
                                 .heads = drawn.heads > 0 ? drawn.heads : problem.heads};
  const kernels::reference::WholeAttention whole{.q = q,
                                                 .k = k,
                                                 .v = v,
                                                 .d_o = d_o,
                                                 .queries = {problem.first_query(), problem.seq_q, 1},
                                                 .keys = {0, problem.seq_kv, 1},
                                                 .bands = bands,
                                                 .scores = problem.resolved_scores(),
                                                 .dropout = problem.scores.dropout > 0 ? &dropout : nullptr,
                                                 .first_batch = drawn.first_batch,
                                                 .first_head = drawn.first_head,
                                                 .alibi_slopes = problem.alibi_slopes,
                                                 .sink_logits = sink_logits};
  DISTATTN_EXPECT(sink_logits.size() == (problem.scores.sink_logits ? index(problem.heads) : 0));
  kernels::Team team(threads);
  const kernels::reference::Rounding same{.exponential = rounding.exponential,
                                          .weight = rounding.weight,
                                          .score = rounding.score,
                                          .sum = rounding.sum,
                                          .dot = rounding.dot,
                                          .chain = rounding.chain,
                                          .delta = rounding.delta,
                                          .underflow = rounding.underflow,
                                          .least = rounding.least,
                                          .element = rounding.element,
                                          .sent = rounding.sent};
  auto exact = kernels::reference::compute_exactly(whole, team, same);
  const auto norms = [](kernels::reference::RowNorms& of) {
    return RowNorms{std::move(of.allowed), std::move(of.terms)};
  };
  ExpectedResult expected{{std::move(exact.o), std::move(exact.lse), std::move(exact.dq), std::move(exact.dk),
                           std::move(exact.dv), std::move(exact.max_logit), std::move(exact.dsink_logits)},
                          norms(exact.o_norms),
                          norms(exact.lse_norms),
                          norms(exact.dq_norms),
                          norms(exact.dk_norms),
                          norms(exact.dv_norms),
                          norms(exact.dsink_norms),
                          norms(exact.max_norms)};
  if (problem.shared_kv) add_values_to_keys(problem, expected);
  return expected;
}

ExactResult exact_attention(const Problem& problem, const ConstTensorView& q, const ConstTensorView& k,
                            const ConstTensorView& v, const ConstTensorView& d_o, int threads,
                            std::span<const double> sink_logits, const DrawnFrom& drawn) {
  return expected_attention(problem, {}, q, k, v, d_o, threads, sink_logits, drawn).exact;
}

}  // namespace distattn

#include "distattn/oracle.hpp"

#include "distattn/mask.hpp"
#include "kernels/reference/oracle.hpp"

namespace distattn {

ExactResult exact_attention(const Problem& problem, const ConstTensorView& q, const ConstTensorView& k,
                            const ConstTensorView& v, const ConstTensorView& d_o, int threads) {
  const auto bands = bands_of(problem.mask);
  const kernels::reference::WholeAttention whole{.q = q,
                                                 .k = k,
                                                 .v = v,
                                                 .d_o = d_o,
                                                 .queries = {problem.first_query(), problem.seq_q, 1},
                                                 .keys = {0, problem.seq_kv, 1},
                                                 .bands = bands,
                                                 .scale = problem.softmax_scale()};
  kernels::Team team(threads);
  auto exact = kernels::reference::compute_exactly(whole, team);
  return {std::move(exact.o), std::move(exact.lse), std::move(exact.dq), std::move(exact.dk), std::move(exact.dv)};
}

}  // namespace distattn

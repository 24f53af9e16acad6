#include "cli/run/shared_oracle.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "distattn/all_gather.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/index.hpp"

namespace distattn::cli {
namespace {

/// Some heads of one sequence of an input, as a whole tensor.
class Slice {
 public:
  Slice(const Inputs& inputs, Tensor tensor, std::int64_t b, std::int64_t first_head, std::int64_t heads, DType dtype)
      : view_{dense_view<const std::byte>(nullptr, dtype, 1, inputs.tokens(tensor), heads, inputs.dim(tensor))} {
    const std::size_t row = static_cast<std::size_t>(heads * inputs.dim(tensor)) * size_of(dtype);
    bytes_.resize(static_cast<std::size_t>(inputs.tokens(tensor)) * row);
    for (std::int64_t s = 0; s < inputs.tokens(tensor); ++s) {
      inputs.read(tensor, b, s, first_head, heads, dtype, bytes_.data() + static_cast<std::size_t>(s) * row);
    }
    view_.data = bytes_.data();
  }
  const ConstTensorView& view() const { return view_; }

 private:
  std::vector<std::byte> bytes_;
  ConstTensorView view_;
};

/// All that it has.
std::vector<std::vector<double>*> vectors_of(ExpectedResult& expected) {
  ExactResult& exact = expected.exact;
  std::vector all = {&exact.o, &exact.lse, &exact.dq, &exact.dk, &exact.dv, &exact.max_logit, &exact.dsink_logits};
  for (RowNorms* norms : {&expected.o, &expected.lse, &expected.dq, &expected.dk, &expected.dv, &expected.dsink_logits,
                          &expected.max_logit}) {
    all.insert(all.end(), {&norms->allowed, &norms->terms});
  }
  return all;
}

}  // namespace

Problem head_group(const Problem& problem, std::int64_t kv_head) {
  Problem one = problem;
  one.batch = one.kv_heads = 1;
  one.heads = problem.heads_per_kv();
  if (!problem.alibi_slopes.empty()) {
    const auto first = problem.alibi_slopes.begin() + kv_head * one.heads;
    one.alibi_slopes.assign(first, first + one.heads);
  }
  return one;
}

SharedOracle::SharedOracle(World& world, const Problem& problem, const Rounding& rounding, const Inputs& inputs,
                           Passes passes)
    : world_(world), problem_(problem), rounding_(rounding), inputs_(inputs), passes_(passes) {
  if (!world.in_process() && world.endpoint().reaches(MemorySpace::host)) processes_ = world.size();
}

ExpectedResult SharedOracle::next() {
  const std::int64_t turn = next_ % processes_, groups = std::int64_t{problem_.batch} * problem_.kv_heads;
  if (turn == 0) mine_ = compute(next_ + world_.first() % std::min(processes_, groups - next_));
  ++next_;
  return processes_ == 1 ? std::move(mine_) : sent_by(static_cast<Rank>(turn));
}

ExpectedResult SharedOracle::compute(std::int64_t group) const {
  const std::int64_t b = group / problem_.kv_heads, kv_head = group % problem_.kv_heads;
  const Problem one = head_group(problem_, kv_head);
  const std::int64_t heads = one.heads, first_head = kv_head * heads;
  const int threads = world_.in_process() ? usable_cores() : world_.cores();
  const Slice q(inputs_, Tensor::q, b, first_head, heads, one.dtype);
  const Slice k(inputs_, Tensor::k, b, kv_head, 1, one.dtype), v(inputs_, Tensor::v, b, kv_head, 1, one.dtype);
  const DrawnFrom drawn{.seed = inputs_.dropout_seed(),
                        .heads = static_cast<int>(inputs_.shape().heads),
                        .first_batch = b,
                        .first_head = first_head};
  std::span<const double> logits = inputs_.sink_logits();
  if (!logits.empty()) logits = logits.subspan(index(first_head), index(heads));
  if (passes_ == Passes::forward) {
    return expected_attention(one, rounding_, q.view(), k.view(), v.view(), {}, threads, logits, drawn);
  }
  const Slice d_o(inputs_, Tensor::d_o, b, first_head, heads, one.dtype);
  return expected_attention(one, rounding_, q.view(), k.view(), v.view(), d_o.view(), threads, logits, drawn);
}

/// Groups have one shape, so that every process knows what comes. Vector by vector, because a whole group is large.
ExpectedResult SharedOracle::sent_by(Rank owner) {
  ExpectedResult result = mine_;
  std::vector<std::size_t> bytes(index(world_.size()));
  world_.run([&](Rank rank, Transport& transport, Bootstrap&) {
    const auto all = vectors_of(result), mine = vectors_of(mine_);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i]->empty()) continue;
      const auto sent = std::as_bytes(std::span(*mine[i]));
      bytes[index(owner)] = sent.size();
      all_gather(transport, rank == owner ? sent : std::span<const std::byte>(), bytes,
                 std::as_writable_bytes(std::span(*all[i])));
    }
  });
  return result;
}

}  // namespace distattn::cli

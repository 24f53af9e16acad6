#include "attend.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/tools/oracle.hpp"
#include "cli/tools/random.hpp"
#include "distattn/convert.hpp"

namespace distattn::test {
namespace {

/// What a problem has besides queries, keys and values.
enum class With { nothing, scores, window };

/// Rows of a whole random tensor at the given positions.
Tensor rows(RandomTensor which, const std::vector<std::int64_t>& positions, int head_count) {
  Tensor result({static_cast<std::int64_t>(positions.size()), head_count, dim});
  for (std::size_t i = 0; i < positions.size(); ++i) {
    fill_normal(1, which, positions[i] * head_count * dim, head_count * dim, DType::fp32,
                reinterpret_cast<std::byte*>(result.values.data() + i * head_count * dim));
  }
  return result;
}

std::vector<std::int64_t> whole() {
  std::vector<std::int64_t> positions(tokens);
  for (std::int64_t i = 0; i < tokens; ++i) positions[static_cast<std::size_t>(i)] = i;
  return positions;
}

ConstTensorView view(const Tensor& tensor) {
  return dense_view(reinterpret_cast<const std::byte*>(tensor.values.data()), DType::fp32, 1, tensor.shape[0],
                    tensor.shape[1], tensor.shape[2]);
}

/// Everything that scores may have, in C and in C++.
constexpr std::array sink_logits = {0.5f, -1.0f, 2.0f, 0.0f};
constexpr std::array alibi_slopes = {0.25, 0.0, -0.125, 1.0};
constexpr double softcap = 1.5;
constexpr std::int64_t window = 5;
constexpr std::uint64_t dropout_seed = 0xfedcba9876543210;

ExactResult compute_exactly(With with) {
  Problem problem;
  problem.seq_q = problem.seq_kv = tokens;
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = problem.value_dim = dim;
  problem.mask = causal_mask();
  if (with == With::window) problem.mask.left = window;
  std::vector<double> logits;
  if (with == With::scores) {
    problem.scores = {.scale = 0, .softcap = softcap, .sink_logits = true, .dropout = 0.25, .max_logit = true};
    problem.alibi_slopes.assign(alibi_slopes.begin(), alibi_slopes.end());
    logits.assign(sink_logits.begin(), sink_logits.end());
  }
  return exact_attention(problem, view(rows(RandomTensor::q, whole(), heads)),
                         view(rows(RandomTensor::k, whole(), kv_heads)), view(rows(RandomTensor::v, whole(), kv_heads)),
                         view(rows(RandomTensor::d_o, whole(), heads)), 1, logits, {.seed = dropout_seed, .offset = 4});
}

const ExactResult& exact(With with) {
  static const std::array all = {compute_exactly(With::nothing), compute_exactly(With::scores),
                                 compute_exactly(With::window)};
  return all[static_cast<std::size_t>(with)];
}

/// Absolute, of values around 1: the equivalence tests judge accuracy.
constexpr double most = 1e-4;

/// A value that is no number is near nothing.
bool near(float mine, double exact) { return std::abs(mine - exact) < most; }

/// Whether a rank's rows are the exact ones.
bool right(const Tensor& mine, const std::vector<std::int64_t>& positions, const std::vector<double>& all) {
  const std::size_t row = mine.values.size() / std::max<std::size_t>(1, positions.size());
  for (std::size_t i = 0; i < mine.values.size(); ++i) {
    if (!near(mine.values[i], all[static_cast<std::size_t>(positions[i / row]) * row + i % row])) return false;
  }
  return true;
}
/// Numbers of heads: the shares of all ranks, put together, are the exact ones.
bool right_heads(distattn_comm* comm, const Tensor& share, float none, float (*combine)(float, float),
                 const std::vector<double>& all) {
  const auto ranks = static_cast<std::size_t>(distattn_comm_size(comm));
  const std::vector<std::size_t> bytes(ranks, heads * sizeof(float));
  std::vector<float> shares(ranks * heads);
  if (distattn_comm_all_gather(comm, share.values.data(), bytes.data(), shares.data()) != DISTATTN_OK) return false;
  for (std::size_t head = 0; head < heads; ++head) {
    float whole = none;
    for (std::size_t rank = 0; rank < ranks; ++rank) whole = combine(whole, shares[rank * heads + head]);
    if (!near(whole, all[head])) return false;
  }
  return true;
}

/// The same of statistics: [heads][tokens].
bool right_statistics(const Tensor& mine, const std::vector<std::int64_t>& positions, const std::vector<double>& all) {
  for (std::size_t i = 0; i < mine.values.size(); ++i) {
    const std::size_t head = i / positions.size(), token = i % positions.size();
    if (!near(mine.values[i], all[head * tokens + static_cast<std::size_t>(positions[token])])) return false;
  }
  return true;
}

}  // namespace

distattn_problem small_problem() {
  distattn_problem problem = DISTATTN_PROBLEM_INIT;
  problem.seq_q = problem.seq_kv = tokens;
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = dim;
  return problem;
}

distattn_options options_for(const char* schedule) {
  distattn_options options = DISTATTN_OPTIONS_INIT;
  options.schedule = schedule;
  options.backward = 1;
  options.backend = "reference";
  options.threads = 1;
  return options;
}

Tensor::Tensor(std::vector<std::int64_t> extents) : shape(std::move(extents)) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  values.resize(static_cast<std::size_t>(count));
  tensor.data = values.data();
  tensor.device.device_type = 1;
  tensor.ndim = static_cast<std::int32_t>(shape.size());
  tensor.dtype = {2, 32, 1};
  tensor.shape = shape.data();
}

namespace {

using BothPasses = distattn_status (*)(distattn_attention* attention, const distattn_tensors* tensors);

distattn_problem problem_with(With with) {
  distattn_problem problem = small_problem();
  if (with == With::window) problem.window_left = window;
  if (with == With::scores) {
    problem.softcap = softcap;
    problem.dropout = 0.25;
    problem.sink_logits = problem.max_logit = 1;
    problem.alibi_slopes = alibi_slopes.data();
    problem.alibi_slopes_count = alibi_slopes.size();
  }
  return problem;
}

std::vector<std::int64_t> positions_of(const distattn_attention* attention, distattn_side side) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(distattn_attention_tokens(attention, side)));
  distattn_attention_positions(attention, side, positions.data());
  return positions;
}

/// Runs both passes and compares; frees the handle.
distattn_status judge(BothPasses both, distattn_attention* attention, distattn_comm* comm, With with) {
  const std::vector<std::int64_t> queries = positions_of(attention, DISTATTN_QUERIES),
                                  keys = positions_of(attention, DISTATTN_KEYS);
  const Tensor q = rows(RandomTensor::q, queries, heads), k = rows(RandomTensor::k, keys, kv_heads),
               v = rows(RandomTensor::v, keys, kv_heads), d_o = rows(RandomTensor::d_o, queries, heads);
  Tensor o(q.shape), lse({heads, q.shape[0]}), dq(q.shape), dk(k.shape), dv(v.shape);
  distattn_tensors tensors = DISTATTN_TENSORS_INIT;
  tensors.q = &q.tensor;
  tensors.k = &k.tensor;
  tensors.v = &v.tensor;
  tensors.o = &o.tensor;
  tensors.lse = &lse.tensor;
  tensors.d_o = &d_o.tensor;
  tensors.dq = &dq.tensor;
  tensors.dk = &dk.tensor;
  tensors.dv = &dv.tensor;
  Tensor logits({heads}), dlogits({heads}), tops({heads});
  std::copy(sink_logits.begin(), sink_logits.end(), logits.values.begin());
  if (with == With::scores) {
    tensors.sink_logits = &logits.tensor;
    tensors.dropout_seed = dropout_seed;
    tensors.dropout_offset = 4;
    tensors.dsink_logits = &dlogits.tensor;
    tensors.max_logit = &tops.tensor;
  }
  const distattn_status status = both(attention, &tensors);
  distattn_attention_free(attention);
  if (status != DISTATTN_OK) return status;

  const ExactResult& all = exact(with);
  bool good = right(o, queries, all.o) && right_statistics(lse, queries, all.lse) && right(dq, queries, all.dq) &&
              right(dk, keys, all.dk) && right(dv, keys, all.dv);
  if (with == With::scores) {
    const auto sum = [](float a, float b) { return a + b; };
    const auto larger = [](float a, float b) { return std::max(a, b); };
    good = right_heads(comm, dlogits, 0, sum, all.dsink_logits) && good;
    good = right_heads(comm, tops, -INFINITY, larger, all.max_logit) && good;
  }
  return good ? DISTATTN_OK : DISTATTN_INTERRUPTED;
}

distattn_status attend_with(BothPasses both, void* user, distattn_comm* comm, With with = With::nothing) {
  const distattn_problem problem = problem_with(with);
  distattn_attention* attention = nullptr;
  const distattn_status status =
      distattn_attention_create(&problem, static_cast<const distattn_options*>(user), comm, &attention);
  return status == DISTATTN_OK ? judge(both, attention, comm, with) : status;
}

distattn_status wait_for_both(distattn_attention* attention, const distattn_tensors* tensors) {
  const distattn_status status = distattn_forward(attention, tensors);
  return status == DISTATTN_OK ? distattn_backward(attention, tensors) : status;
}

distattn_status queue_both(distattn_attention* attention, const distattn_tensors* tensors) {
  distattn_event *forward = nullptr, *backward = nullptr;
  distattn_status status = distattn_forward_async(attention, tensors, nullptr, &forward);
  if (status == DISTATTN_OK) status = distattn_backward_async(attention, tensors, forward, &backward);
  if (status == DISTATTN_OK) status = distattn_event_wait(backward);
  std::int32_t done = 0;
  if (status == DISTATTN_OK) status = distattn_event_done(forward, &done);
  if (status == DISTATTN_OK && done == 0) status = DISTATTN_INTERRUPTED;
  distattn_event_free(forward);
  distattn_event_free(backward);
  return status;
}

}  // namespace

distattn_status attend(void* user, distattn_comm* comm) { return attend_with(wait_for_both, user, comm); }
distattn_status attend_scores(void* user, distattn_comm* comm) {
  return attend_with(wait_for_both, user, comm, With::scores);
}
distattn_status attend_queued(void* user, distattn_comm* comm) { return attend_with(queue_both, user, comm); }

distattn_status attend_layers(void* user, distattn_comm* comm) {
  constexpr std::array kinds = {With::window, With::nothing, With::scores};
  std::array<distattn_problem, kinds.size()> problems;
  std::array<const distattn_problem*, kinds.size()> pointers;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    problems[i] = problem_with(kinds[i]);
    pointers[i] = &problems[i];
  }
  constexpr std::array weights = {5.0, 1.0, 0.5};
  std::array<distattn_attention*, kinds.size()> attentions;
  distattn_status status =
      distattn_attentions_create(pointers.data(), weights.data(), kinds.size(),
                                 static_cast<const distattn_options*>(user), comm, attentions.data());
  for (std::size_t i = 0; i < kinds.size() && status == DISTATTN_OK; ++i) {
    if (positions_of(attentions[i], DISTATTN_QUERIES) != positions_of(attentions[0], DISTATTN_QUERIES))
      return DISTATTN_INTERRUPTED;
  }
  for (std::size_t i = kinds.size(); i-- > 0 && status == DISTATTN_OK;)
    status = judge(wait_for_both, attentions[i], comm, kinds[i]);
  return status;
}

}  // namespace distattn::test

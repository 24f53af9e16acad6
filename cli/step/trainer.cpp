#include "cli/step/trainer.hpp"

#include <algorithm>
#include <cmath>

#include "cli/step/rank_sum.hpp"
#include "cli/step/stopwatch.hpp"
#include "kernels/dense/adamw.hpp"

namespace distattn::step {

/// What a rank measured in one step; travels to all others.
struct Trainer::RankFigures {
  double loss = 0;
  double seconds = 0, forward_s = 0, backward_s = 0, attention_s = 0, gradient_s = 0, optimizer_s = 0;
  std::int64_t peak_kept = 0, peak_host = 0, peak_compute = 0;
};

Trainer::Trainer(const ModelShape& shape, const CheckpointPolicy& policy, const TokenSource& tokens, std::uint64_t seed,
                 Attention& attention, Bootstrap& bootstrap)
    : shape_(shape),
      tokens_(tokens),
      library_attention_(attention),
      bootstrap_(bootstrap),
      positions_(attention.query_positions()),
      attention_(shape, attention),
      decoder_(shape, positions_, attention_, policy),
      parameters_(parameters_of(shape)),
      values_(draw_parameters<float>(parameters_, seed)),
      gradients_(values_.size()),
      first_moment_(values_.size()),
      second_moment_(values_.size()),
      sequence_(attention.outline(Pass::forward).sharding.problem.seq_q) {}

StepReport Trainer::run_step(const std::function<void()>& inspect) {
  const TokenBatch batch = tokens_.batch(steps_, positions_);
  RankFigures figures;
  compute_gradients(batch, figures);
  if (inspect) inspect();
  {
    const Stopwatch whole(figures.seconds), watch(figures.optimizer_s);
    update();
  }
  return combine(figures);
}

void Trainer::compute_gradients(const TokenBatch& batch, RankFigures& figures) {
  attention_.reset_use();
  decoder_.memory().reset_peaks();
  const auto weights = weights_view<const float>(shape_, parameters_, values_.data());
  const double weight = 1.0 / static_cast<double>(sequence_ - 1);
  const Stopwatch whole(figures.seconds);
  {
    const Stopwatch watch(figures.forward_s);
    figures.loss = weight * decoder_.forward(weights, batch, weight);
  }
  {
    const Stopwatch watch(figures.backward_s);
    std::fill(gradients_.begin(), gradients_.end(), 0.0f);
    decoder_.backward(weights, batch, weights_view(shape_, parameters_, gradients_.data()));
  }
  {
    const Stopwatch watch(figures.gradient_s);
    sum_over_ranks(bootstrap_, gradients_);
  }
  figures.attention_s = attention_.use().seconds;
  const ActivationMemory& memory = decoder_.memory();
  figures.peak_kept = static_cast<std::int64_t>(memory.kept.peak());
  figures.peak_host = static_cast<std::int64_t>(memory.host.peak());
  figures.peak_compute = static_cast<std::int64_t>(memory.compute.peak());
}

void Trainer::update() {
  kernels::dense::adamw<float>({}, steps_ + 1, values_, gradients_, first_moment_, second_moment_);
  ++steps_;
}

StepReport Trainer::combine(const RankFigures& mine) const {
  const auto ranks = all_gather(bootstrap_, mine);
  StepReport report;
  report.step = steps_ - 1;
  for (const RankFigures& rank : ranks) {
    report.loss += rank.loss;
    const auto raise = [](auto& to, auto value) { to = std::max(to, value); };
    raise(report.seconds, rank.seconds);
    raise(report.forward_s, rank.forward_s);
    raise(report.backward_s, rank.backward_s);
    raise(report.attention_s, rank.attention_s);
    raise(report.gradient_s, rank.gradient_s);
    raise(report.optimizer_s, rank.optimizer_s);
    raise(report.peak_activation_bytes, rank.peak_kept);
    raise(report.peak_offloaded_bytes, rank.peak_host);
    raise(report.peak_memory_bytes, rank.peak_compute);
  }
  double squares = 0;
  for (const float g : gradients_) squares += static_cast<double>(g) * static_cast<double>(g);
  report.grad_norm = std::sqrt(squares);
  report.attention_forwards = attention_.use().forwards;
  report.attention_backwards = attention_.use().backwards;

  const auto& forward_sent = library_attention_.counts(Pass::forward).bytes_sent;
  const auto& backward_sent = library_attention_.counts(Pass::backward).bytes_sent;
  const std::int64_t gradient_sent =
      static_cast<std::int64_t>(gradients_.size() * sizeof(float)) * (static_cast<std::int64_t>(ranks.size()) - 1);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::int64_t forward = report.attention_forwards * forward_sent[rank];
    const std::int64_t backward = report.attention_backwards * backward_sent[rank];
    report.forward_bytes += forward;
    report.backward_bytes += backward;
    report.gradient_bytes += gradient_sent;
    report.bytes_sent_max = std::max(report.bytes_sent_max, forward + backward + gradient_sent);
  }
  return report;
}

}  // namespace distattn::step

#pragma once
/// Sketches by hand: only what takes time, and a machine on which it is easily said how long.

#include <cstdint>
#include <vector>

#include "distattn/simulate.hpp"

namespace distattn::test {

class SketchBuilder {
 public:
  explicit SketchBuilder(Rank rank) { sketch_.rank = rank; }

  /// Full tiles of 1024 tokens a side.
  SketchBuilder& compute(int number, double pairs, std::vector<StepId> after = {}) {
    return compute_tiles(number, pairs, pairs, 1, std::move(after));
  }
  SketchBuilder& compute_tiles(int number, double pairs, double computed_pairs, std::int64_t tiles,
                               std::vector<StepId> after = {}) {
    sketch_.works.push_back({pairs, computed_pairs, tiles, 1024, 1024, Coverage::full});
    return step(number, number, Lane::compute, std::move(after));
  }
  /// A tile of `queries` by 1024 keys of `key_bytes` each, whose pairs are all seen but count twice as met.
  SketchBuilder& compute_few(int number, double pairs, std::int32_t queries, std::int64_t key_bytes) {
    sketch_.works.push_back({pairs, 2 * pairs, 1, queries, 1024, Coverage::full, key_bytes});
    step(number, number, Lane::compute, {});
    sketch_.steps.back().tile_bytes = key_bytes + 20;
    return *this;
  }
  SketchBuilder& touch(int number, std::int64_t bytes, std::vector<StepId> after = {}) {
    step(number, number, Lane::compute, std::move(after));
    sketch_.steps.back().touched_bytes = bytes;
    return *this;
  }
  SketchBuilder& exchange(int number, std::vector<ProgramSketch::JoinedMessage> sends, std::vector<Rank> receives,
                          std::vector<StepId> after = {}, Lane lane = Lane::near) {
    sketch_.sends.insert(sketch_.sends.end(), sends.begin(), sends.end());
    sketch_.receives.insert(sketch_.receives.end(), receives.begin(), receives.end());
    return step(number, number, lane, std::move(after));
  }
  SketchBuilder& receive(int number, std::vector<Rank> from) { return exchange(number, {}, std::move(from)); }
  /// Posted in step `number`, waited for after step `due`.
  SketchBuilder& receive_early(int number, int due, std::vector<Rank> from) {
    exchange(number, {}, std::move(from), {}, Lane::far);
    sketch_.steps.back().due = due;
    return *this;
  }
  operator ProgramSketch() const { return sketch_; }

 private:
  SketchBuilder& step(int number, int due, Lane lane, std::vector<StepId> after) {
    sketch_.after.insert(sketch_.after.end(), after.begin(), after.end());
    const auto end = [](const auto& all) { return static_cast<std::uint32_t>(all.size()); };
    sketch_.steps.push_back({0, 0, 0, number, due, end(sketch_.works), end(sketch_.sends), end(sketch_.receives),
                             end(sketch_.after), lane});
    return *this;
  }
  ProgramSketch sketch_;
};

/// One pair takes a second, a byte a second on a near link, ten on a far one; no latency.
inline Machine slow_machine(int nodes, int ranks_per_node, LinkOwner far_owner = LinkOwner::rank) {
  Machine machine;
  machine.name = "slow";
  machine.nodes = nodes;
  machine.ranks_per_node = ranks_per_node;
  machine.near = {1, 0};
  machine.far = {0.1, 0};
  machine.far_owner = far_owner;
  const RateCurve rate{{{0, flops_per_pair(8, 8, Pass::forward)}}};
  machine.rates[DType::fp32].fill(KernelRates{rate, rate});
  return machine;
}

inline Timeline run(const std::vector<ProgramSketch>& ranks, const Machine& machine, int threads = 1) {
  Outline outline;
  outline.sharding.problem.head_dim = outline.sharding.problem.value_dim = 8;
  return simulate(outline, ranks, machine, threads);
}

}  // namespace distattn::test

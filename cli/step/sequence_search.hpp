#pragma once
/// The longest sequence of a training step that fits a machine.

#include <cstdint>
#include <map>
#include <optional>

#include "cli/step/prediction.hpp"

namespace distattn::step {

/// Searches lengths of which every rank has as many tokens, with one schedule under any policy. What attention needs
/// depends on the length alone and is counted once for all policies.
class SequenceSearch {
 public:
  /// Of a setting whose routes are decided. The machine must outlive this.
  SequenceSearch(StepSetting setting, const Machine& machine);

  /// The longest that fits: with one token more on every rank it does not. 0: not even one token, or as many as the
  /// mask needs, or the state alone; nothing: the mask is for one length.
  std::optional<std::int64_t> longest(const CheckpointPolicy& policy);

 private:
  /// Of the rank that needs most.
  struct Attention {
    double tokens = 0, buffer_bytes = 0;
  };
  std::optional<Attention> count(std::int64_t tokens) const;
  std::optional<Attention> count_placed(const Problem& problem) const;
  /// With `tokens` on every rank; nothing where such a sequence is refused.
  const std::optional<Attention>& counted(std::int64_t tokens);

  StepSetting setting_;
  const Machine& machine_;
  double room_;                                               // for activations and buffers
  std::map<std::int64_t, std::optional<Attention>> counted_;  // by tokens
};

}  // namespace distattn::step

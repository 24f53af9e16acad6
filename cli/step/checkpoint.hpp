#pragma once
/// Checkpointing: which activations of a layer stay from forward to backward.
///
/// A policy only lists what is kept. What the backward computes again follows from it: complete() (layer.hpp) fills in
/// whatever is missing, in the order and with the code of the forward, so that losses and gradients are the same bits
/// under every policy.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "cli/step/memory.hpp"
#include "cli/step/model.hpp"
#include "distattn/types.hpp"

namespace distattn::step {

/// A layer's activations, in the order in which the forward computes them.
enum class Part : std::uint8_t { x, n, q, k, v, o, lse, y, m, gate, up, s };
inline constexpr std::size_t part_count = 12;

/// Values that a part has for each token.
std::int64_t width_of(const ModelShape& shape, Part part);

template <class T>
class Activations {
 public:
  Tensor<T>& operator[](Part part) { return parts_[index(part)]; }
  const Tensor<T>& operator[](Part part) const { return parts_[index(part)]; }
  std::array<Tensor<T>, part_count>& all() { return parts_; }

 private:
  std::array<Tensor<T>, part_count> parts_;
};

struct CheckpointPolicy {
  std::string_view name;
  std::vector<Part> kept;       ///< in the memory that computes
  std::vector<Part> offloaded;  ///< kept in host memory
};

/// none, layer, attention-output, attention-output-host.
const std::vector<CheckpointPolicy>& checkpoint_policies();
/// Throws Error(usage) that lists the names.
const CheckpointPolicy& checkpoint_policy(std::string_view name);

/// After a layer's forward: keeps and offloads what the policy says, drops the rest.
template <class T>
void hold(const CheckpointPolicy& policy, Activations<T>& activations, ActivationMemory& memory);

/// Before a layer's backward: brings back what was offloaded.
template <class T>
void fetch(const CheckpointPolicy& policy, Activations<T>& activations, ActivationMemory& memory);

}  // namespace distattn::step

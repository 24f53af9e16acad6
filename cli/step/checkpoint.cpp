#include "cli/step/checkpoint.hpp"

#include "distattn/error.hpp"

namespace distattn::step {

std::int64_t width_of(const ModelShape& shape, Part part) {
  switch (part) {
    case Part::x:
    case Part::n:
    case Part::q:
    case Part::o:
    case Part::y:
    case Part::m:
      return shape.hidden;
    case Part::k:
    case Part::v:
      return shape.kv_width();
    case Part::lse:
      return 2 * shape.heads;  // and what an fp32 LSE cannot hold
    case Part::gate:
    case Part::up:
    case Part::s:
      return shape.ffn;
  }
  return 0;
}

const std::vector<CheckpointPolicy>& checkpoint_policies() {
  using enum Part;
  static const std::vector<CheckpointPolicy> policies{
      {"none", {x, n, q, k, v, o, lse, y, m, gate, up, s}, {}},
      {"layer", {x}, {}},
      {"attention-output", {x, o, lse}, {}},
      {"attention-output-host", {x}, {o, lse}},
  };
  return policies;
}

const CheckpointPolicy& checkpoint_policy(std::string_view name) {
  std::string known;
  for (const CheckpointPolicy& policy : checkpoint_policies()) {
    if (policy.name == name) return policy;
    known += (known.empty() ? "" : ", ") + std::string(policy.name);
  }
  refuse("checkpoint policy '" + std::string(name) + "' is not known (known: " + known + "): choose one of these");
}

template <class T>
void hold(const CheckpointPolicy& policy, Activations<T>& activations, ActivationMemory& memory) {
  Activations<T> held;
  for (const Part part : policy.kept) {
    held[part] = std::move(activations[part]);
    held[part].charge(memory.kept);
  }
  for (const Part part : policy.offloaded) held[part] = activations[part].moved_to(memory.host);
  activations = std::move(held);
}

template <class T>
void fetch(const CheckpointPolicy& policy, Activations<T>& activations, ActivationMemory& memory) {
  for (const Part part : policy.offloaded) activations[part] = activations[part].moved_to(memory.working);
}

template void hold(const CheckpointPolicy&, Activations<float>&, ActivationMemory&);
template void hold(const CheckpointPolicy&, Activations<double>&, ActivationMemory&);
template void fetch(const CheckpointPolicy&, Activations<float>&, ActivationMemory&);
template void fetch(const CheckpointPolicy&, Activations<double>&, ActivationMemory&);

}  // namespace distattn::step

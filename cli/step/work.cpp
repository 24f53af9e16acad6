#include "cli/step/work.hpp"

#include <algorithm>
#include <array>

namespace distattn::step {
namespace {

constexpr std::array<Part, part_count> all_parts = {Part::x,   Part::n, Part::q, Part::k,    Part::v,  Part::o,
                                                    Part::lse, Part::y, Part::m, Part::gate, Part::up, Part::s};

bool holds(const std::vector<Part>& parts, Part part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

bool survives(const CheckpointPolicy& policy, Part part) {
  return holds(policy.kept, part) || holds(policy.offloaded, part);
}

/// What complete() does for one token to make a part.
DenseWork work_of(const ModelShape& shape, Part part) {
  const auto h = static_cast<double>(shape.hidden), kv = static_cast<double>(shape.kv_width()),
             f = static_cast<double>(shape.ffn);
  switch (part) {
    case Part::x:
    case Part::o:
    case Part::lse:
      return {};
    case Part::n:
    case Part::m:
      return {0, 2 * h};
    case Part::q:
      return {2 * h * h, 2 * h};
    case Part::k:
      return {2 * h * kv, 2 * kv};
    case Part::v:
      return {2 * h * kv, 0};
    case Part::y:
      return {2 * h * h, 2 * h};
    case Part::gate:
    case Part::up:
      return {2 * h * f, 0};
    case Part::s:
      return {0, 3 * f};
  }
  return {};
}

/// z = y + s·W2 of one token.
DenseWork output_work(const ModelShape& shape) {
  return {2.0 * static_cast<double>(shape.hidden) * static_cast<double>(shape.ffn),
          2.0 * static_cast<double>(shape.hidden)};
}

/// Embedding, final norm, head and loss of one token.
DenseWork ends_work(const ModelShape& shape) {
  const auto h = static_cast<double>(shape.hidden), v = static_cast<double>(shape.vocab);
  return {2 * h * v, 4 * h + 4 * v};
}

}  // namespace

DenseWork forward_work(const ModelShape& shape, double tokens) {
  DenseWork layer = output_work(shape);
  for (const Part part : all_parts) layer += work_of(shape, part);
  DenseWork all = shape.layers * layer;
  all += ends_work(shape);
  return tokens * all;
}

DenseWork backward_work(const ModelShape& shape, double tokens) { return 2 * forward_work(shape, tokens); }

DenseWork recomputed_work(const ModelShape& shape, const CheckpointPolicy& policy, double tokens) {
  DenseWork layer;
  for (const Part part : all_parts) {
    if (!survives(policy, part)) layer += work_of(shape, part);
  }
  return tokens * shape.layers * layer;
}

int attention_forwards(const CheckpointPolicy& policy) {
  return survives(policy, Part::o) && survives(policy, Part::lse) ? 1 : 2;
}

std::int64_t most_tokens(const Sharding& sharding) {
  std::int64_t most = 0;
  for (Rank rank = 0; rank < sharding.ranks; ++rank) most = std::max(most, owned_tokens(sharding.queries, rank));
  return most;
}

ActivationBytes activation_bytes(const ModelShape& shape, const CheckpointPolicy& policy, double tokens,
                                 double value_bytes) {
  const auto bytes = [&](Part part) {
    const double each = part == Part::lse ? std::max(4.0, value_bytes) : value_bytes;
    return tokens * each * static_cast<double>(width_of(shape, part));
  };
  const auto values = [&](std::int64_t width) { return tokens * value_bytes * static_cast<double>(width); };
  double kept = 0, host = 0, layer = 0, to_attention = 0;
  for (const Part part : all_parts) {
    layer += bytes(part);
    if (part <= Part::lse) to_attention += bytes(part);
    if (holds(policy.kept, part)) kept += bytes(part);
    if (holds(policy.offloaded, part)) host += bytes(part);
  }
  const double last_x = values(shape.hidden), logits = values(shape.vocab);
  ActivationBytes result;
  result.host = shape.layers * host;
  result.kept = shape.layers * kept + last_x + logits;

  // The peak is at the head, together with the normed last x, and then its gradient in place of the logits'; or in the
  // last layer's backward, where all its activations are there with dz and ds, and then those up to lse with dy and the
  // gradients of o, q, k and v.
  const double at_head = shape.layers * kept + 2 * last_x + std::max(logits, last_x);
  const double others = (shape.layers - 1) * kept;
  const double in_ffn = others + layer + values(shape.hidden) + values(shape.ffn);
  const double in_attention = others + to_attention + 3 * values(shape.hidden) + 2 * values(shape.kv_width());
  result.compute = std::max({at_head, in_ffn, in_attention});
  return result;
}

}  // namespace distattn::step

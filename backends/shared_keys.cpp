#include "backends/shared_keys.hpp"

#include <map>
#include <utility>

#include "backends/batches.hpp"
#include "distattn/index.hpp"

namespace distattn::backends {
namespace {

constexpr BufferId none{-1};

/// Calls visit(buffer, value, parts) for every buffer of the rank's own that has tokens.
template <class Visit>
void for_each_own(const BufferTable& buffers, Visit visit) {
  for (std::size_t i = 0; i < buffers.program().buffers.size(); ++i) {
    const auto buffer = static_cast<BufferId>(i);
    const Value& value = buffers.decl(buffer).value;
    const bool own = owner_of(buffers.outline(), value) == buffers.rank() &&
                     (is_input(value.kind) || value.contributor == buffers.rank());
    if (own && buffers.parts(buffer)[0].shape.tokens > 0) visit(buffer, value, buffers.parts(buffer));
  }
}

float* floats(const BufferTable::Part& part) { return reinterpret_cast<float*>(part.data); }

}  // namespace

SharedKeys::SharedKeys(const BufferTable& buffers, bool settles) {
  using Parts = std::span<const BufferTable::Part>;
  const Sharding& sharding = buffers.outline().sharding;
  const Problem& problem = sharding.problem;
  if (buffers.outline().pass == Pass::forward || !problem.has_sums()) return;
  std::map<int, BufferId> first_keys;  // by group
  for_each_own(buffers, [&](BufferId buffer, const Value& value, Parts) {
    if (value.kind == ValueKind::key_value) first_keys.try_emplace(value.group, buffer);
  });
  std::map<std::pair<int, SegmentId>, BufferId> queries;  // by group
  for_each_own(buffers, [&](BufferId buffer, const Value& value, Parts parts) {
    if (value.kind != ValueKind::query) return;
    const auto keys = first_keys.find(value.group);
    const bool any = keys != first_keys.end();
    const BufferTable::Part& into = parts[4];
    kernels::ConstRows k;
    std::int64_t count = 0;
    if (any) {
      const BufferTable::Part& part = buffers.parts(keys->second)[0];
      k = kernels::packed_rows(static_cast<const void*>(part.data), part.shape.heads, part.shape.tokens,
                               part.shape.dim);
      count = part.shape.tokens;
    }
    found_.push_back({.dtype = problem.dtype,
                      .batch = problem.batch,
                      .kv_count = into.shape.heads,
                      .head_dim = into.shape.dim,
                      .k = k,
                      .keys = count,
                      .into = floats(into)});
    key_values_.push_back(any ? keys->second : none);
    queries[{value.group, value.segment}] = buffer;
    // Where types are narrow, outputs may be of rounded weights, and so may delta.
    if (settles && problem.dtype != problem.accumulator()) {
      const PartShape& rows = parts[3].shape;
      products_[buffer].resize(index(problem.batch * rows.heads * rows.tokens));
    }
  });
  for_each_own(buffers, [&](BufferId buffer, const Value& value, Parts parts) {
    if (value.kind != ValueKind::dquery) return;
    const BufferId of = queries.at({value.group, value.segment});
    const Parts query = buffers.parts(of);
    settled_.push_back({.shape = shape_of(problem, sharding.groups[index(value.group)]),
                        .queries = parts[0].shape.tokens,
                        .dq = kernels::packed_rows(static_cast<void*>(parts[0].data), parts[0].shape.heads,
                                                   parts[0].shape.tokens, parts[0].shape.dim),
                        .sums = floats(parts[1]),
                        .squares = floats(parts[2]),
                        .shared = floats(query[4]),
                        .delta = floats(query[3]),
                        .products = products_of(of)});
    dqueries_.push_back(buffer);
  });
}

float* SharedKeys::products_of(BufferId query) {
  const auto found = products_.find(query);
  return found == products_.end() ? nullptr : found->second.data();
}

std::span<const kernels::ShareArgs> SharedKeys::to_find(const Placement* placement) {
  for (std::size_t i = 0; placement != nullptr && i < found_.size(); ++i) {
    if (key_values_[i] != none) found_[i].k = placement->rows(key_values_[i], 0);
  }
  return found_;
}

std::span<const kernels::SettleArgs> SharedKeys::to_settle(const Placement* placement) {
  for (std::size_t i = 0; placement != nullptr && i < settled_.size(); ++i) {
    settled_[i].dq = placement->rows(dqueries_[i], 0);
  }
  return settled_;
}

}  // namespace distattn::backends

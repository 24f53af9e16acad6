#include "backends/cudnn/graph.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "backends/cudnn/graph_builder.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::cudnn {
namespace {

constexpr float hidden_score = -std::numeric_limits<float>::infinity();
constexpr float one = 1;
constexpr std::int64_t most_engines = 16;

std::vector<DescriptorHandle> handles_of(const std::vector<Descriptor>& descriptors) {
  std::vector<DescriptorHandle> handles;
  for (const Descriptor& descriptor : descriptors) handles.push_back(descriptor.handle());
  return handles;
}

}  // namespace

AttendGraph::AttendGraph(const Library& library, const AttendShape& shape, const Target& target)
    : library_(library), graph_(library, DescriptorType::operation_graph) {
  GraphBuilder builder(library, shape);
  builder.build();
  graph_.set(Attribute::operation_graph_ops, AttributeType::descriptor, handles_of(builder.operations()));
  if (target.handle != nullptr) graph_.set(Attribute::operation_graph_handle, AttributeType::handle, target.handle);
  graph_.finalize("make a graph of an attention");
}

std::vector<Descriptor> AttendGraph::engines(const Target& target) const {
  Descriptor heuristics(library_, DescriptorType::engine_heuristics);
  heuristics.set(Attribute::engine_heuristics_operation_graph, graph_)
      .set(Attribute::engine_heuristics_mode, AttributeType::heur_mode, HeuristicsMode::a);
  if (target.properties) heuristics.set(Attribute::engine_heuristics_device_properties, *target.properties);
  heuristics.finalize("find a kernel for an attention");
  std::vector<Descriptor> engines;
  for (std::int64_t i = 0; i < most_engines; ++i) engines.emplace_back(library_, DescriptorType::engine_config);
  std::vector<DescriptorHandle> handles = handles_of(engines);
  std::int64_t count = 0;
  library_.check(library_.get_attribute(heuristics.handle(), Attribute::engine_heuristics_results,
                                        AttributeType::descriptor, most_engines, &count, handles.data()),
                 "find a kernel for an attention");
  engines.erase(engines.begin() + std::min(count, most_engines), engines.end());
  return engines;
}

AttendPlan::AttendPlan(const Library& library, const AttendShape& shape, const Target& target)
    : library_(library), pass_(shape.pass) {
  if (shape.left) left_ = static_cast<float>(*shape.left);
  if (shape.right) right_ = static_cast<std::int32_t>(*shape.right);
  const AttendGraph graph(library, shape, target);
  for (const Descriptor& engine : graph.engines(target)) {
    Descriptor plan(library, DescriptorType::execution_plan);
    plan.set(Attribute::execution_plan_engine_config, engine);
    if (target.handle != nullptr) plan.set(Attribute::execution_plan_handle, AttributeType::handle, target.handle);
    if (target.properties) plan.set(Attribute::execution_plan_device_properties, *target.properties);
    if (!plan.can_finalize()) continue;
    std::int64_t bytes = 0, count = 0;
    library.check(library.get_attribute(plan.handle(), Attribute::execution_plan_workspace_size, AttributeType::int64,
                                        1, &count, &bytes),
                  "say how much memory it needs");
    workspace_bytes_ = index(bytes);
    plan_ = plan;
    return;
  }
  throw Error(ErrorKind::environment,
              "cuDNN has no kernel for this attention (none of its engines takes the graph): "
              "take provider own");
}

/// Where the tensors of a pass lie.
struct AttendPlan::Memory {
  std::vector<std::pair<Uid, const void*>> places;
};

void AttendPlan::start(Handle handle, const Operands& operands, void* workspace) const {
  DISTATTN_EXPECT(pass_ == Pass::forward);
  const auto scale = static_cast<float>(operands.scores.scale);
  const Memory memory{{{Uid::q, operands.q},
                       {Uid::k, operands.k},
                       {Uid::v, operands.v},
                       {Uid::scale, &scale},
                       {Uid::o, operands.o},
                       {Uid::stats, operands.stats}}};
  start(handle, memory, workspace);
}

void AttendPlan::start(Handle handle, const GradientOperands& operands, void* workspace) const {
  DISTATTN_EXPECT(pass_ == Pass::backward);
  const auto scale = static_cast<float>(operands.scores.scale);
  const Memory memory{{{Uid::q, operands.q},
                       {Uid::k, operands.k},
                       {Uid::v, operands.v},
                       {Uid::scale, &scale},
                       {Uid::o, operands.o},
                       {Uid::d_o, operands.d_o},
                       {Uid::stats, operands.stats},
                       {Uid::one, &one},
                       {Uid::delta, operands.delta},
                       {Uid::dq_sum, operands.dq_sum},
                       {Uid::dq, operands.dq},
                       {Uid::dk, operands.dk},
                       {Uid::dv, operands.dv}}};
  start(handle, memory, workspace);
}

void AttendPlan::start(Handle handle, const Memory& memory, void* workspace) const {
  std::vector<std::int64_t> uids;
  std::vector<const void*> pointers;
  const auto give = [&](Uid uid, const void* pointer) {
    uids.push_back(static_cast<std::int64_t>(uid));
    pointers.push_back(pointer);
  };
  for (const auto& [uid, pointer] : memory.places) give(uid, pointer);
  if (left_ || right_) give(Uid::hidden, &hidden_score);
  if (left_) give(Uid::left, &*left_);
  if (right_ && *right_ != 0) give(Uid::right, &*right_);
  Descriptor pack(library_, DescriptorType::variant_pack);
  pack.set(Attribute::variant_pack_unique_ids, AttributeType::int64, uids)
      .set(Attribute::variant_pack_data_pointers, AttributeType::void_ptr, pointers)
      .set(Attribute::variant_pack_workspace, AttributeType::void_ptr, workspace)
      .finalize("take the operands");
  library_.check(library_.execute(handle, plan_->handle(), pack.handle()), "start an attention");
}

}  // namespace distattn::backends::cudnn

#pragma once
/// One attention, or its gradients, as a graph of cuDNN's operations, and the plan that computes it.

#include <optional>

#include "backends/cudnn/attend_shape.hpp"
#include "backends/cudnn/library.hpp"
#include "distattn/scores.hpp"

namespace distattn::backends::cudnn {

/// Where the operands lie, in device memory: the first row or column of each.
struct Operands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  float* o = nullptr;      ///< fp32
  float* stats = nullptr;  ///< the log-sum-exp of scaled scores
  Scores scores{1};
};

/// Those of a gradient: element types as the inputs' unless said otherwise.
struct GradientOperands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* o = nullptr;
  const void* d_o = nullptr;
  const float* stats = nullptr;  ///< fp32, of the whole attention
  float* delta = nullptr;        ///< fp32, [batch][head][row] without gaps; holds nothing before or after
  float* dq_sum = nullptr;       ///< likewise with head_dim
  void* dq = nullptr;            ///< gradients are written, not added to
  void* dk = nullptr;
  void* dv = nullptr;
  Scores scores{1};
};

/// What plans are made for: a handle of the GPU that shall run them, or the description of any GPU.
struct Target {
  Handle handle = nullptr;
  std::optional<Descriptor> properties = {};
};

/// O = softmax(scale · Q Kᵀ between the diagonals) V in fp32, with statistics; or the gradients of that, where O and
/// statistics are those of all keys.
class AttendGraph {
 public:
  AttendGraph(const Library& library, const AttendShape& shape, const Target& target);

  /// cuDNN's proposals, best first.
  std::vector<Descriptor> engines(const Target& target) const;

 private:
  const Library& library_;
  Descriptor graph_;
};

/// A compiled AttendGraph.
class AttendPlan {
 public:
  /// Takes the first proposal that works. Throws Error(environment) if none does.
  AttendPlan(const Library& library, const AttendShape& shape, const Target& target);

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// Starts it on the stream that `handle` has, with the operands of its pass.
  void start(Handle handle, const Operands& operands, void* workspace) const;
  void start(Handle handle, const GradientOperands& operands, void* workspace) const;

 private:
  struct Memory;
  void start(Handle handle, const Memory& memory, void* workspace) const;

  const Library& library_;
  const Pass pass_;
  std::optional<Descriptor> plan_;
  std::size_t workspace_bytes_ = 0;
  std::optional<float> left_;  // the values that the graph takes by name
  std::optional<std::int32_t> right_;
};

}  // namespace distattn::backends::cudnn

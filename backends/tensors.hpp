#pragma once
/// A rank's tensors by name.

#include <cstddef>
#include <cstdint>

#include "distattn/engine.hpp"

namespace distattn::backends {

/// Which member of Bindings.
enum class Tensor : std::uint8_t { q, k, v, o, lse, lse_low, d_o, dq, dk, dv, sink_logits, dsink_logits };

ConstTensorView view(const Bindings& bindings, Tensor tensor);
/// `tensor` must be one that a pass writes.
TensorView result_view(const Bindings& bindings, Tensor tensor);

/// Whether the tensor, a result of `pass`, may share memory with one that the pass reads.
bool may_overlap_inputs(const Bindings& bindings, Tensor result, Pass pass);

}  // namespace distattn::backends

#pragma once
/// Between a rank's tensors and its own buffers: what is packed before the first step and unpacked after the last.

#include <map>
#include <utility>
#include <vector>

#include "distattn/engine.hpp"
#include "kernels/kernels.hpp"

namespace distattn::backends::host {

/// What staging computes with.
struct Workers {
  const kernels::HostKernels& kernels;
  kernels::Team& team;
  const kernels::StopFlag& stop;
};

/// Prepared once for a program; load and store allocate nothing.
class Staging {
 public:
  /// delta = rowsum(dO ∘ O) needs O packed, a few rows at a time: `pieces_at_hand` of them.
  Staging(const BufferTable& buffers, int pieces_at_hand);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void load(const Bindings& bindings, const Workers& workers);
  /// Adds the gradients of key heads that groups share, in group order, into the first group's buffer, and unpacks.
  void store(const Bindings& bindings, const Workers& workers);

 private:
  /// Which member of Bindings.
  enum class Tensor : std::uint8_t { q, k, v, o, lse, d_o, dq, dk, dv };
  /// Some heads of some tokens of a tensor, and their place in a buffer.
  struct Piece {
    Tensor tensor{};
    std::int64_t batch = 0, token = 0, head = 0;  // of its first element in the tensor
    kernels::RearrangeArgs packed;                // the buffer's side; a call fills in the tensor's
  };
  using Part = BufferTable::Part;

  void place_input(const BufferTable& buffers, BufferId buffer, std::int64_t token);
  void place_result(const BufferTable& buffers, BufferId buffer, std::int64_t token);
  void place_delta(const BufferTable& buffers, BufferId query, std::int64_t token);
  void place_sums(const BufferTable& buffers, const std::map<std::pair<SegmentId, int>, BufferId>& gradients);
  static ConstTensorView view(const Bindings& bindings, Tensor tensor);
  static TensorView result_view(const Bindings& bindings, Tensor tensor);
  std::span<const kernels::RearrangeArgs> packing(const Bindings& bindings, std::span<const Piece> pieces);
  std::span<const kernels::RearrangeArgs> unpacking(const Bindings& bindings, std::span<const Piece> pieces);

  std::vector<Piece> inputs_, results_;
  std::vector<Piece> outputs_;              // of o, into scratch_
  std::vector<kernels::DeltaArgs> deltas_;  // of the same rows as outputs_
  std::size_t pieces_at_hand_;
  std::vector<std::byte> scratch_;
  std::vector<std::vector<kernels::AccumulateArgs>> sums_;  // one list after the other
  std::vector<kernels::RearrangeArgs> arguments_;
};

}  // namespace distattn::backends::host

#pragma once
/// Between a rank's tensors and its own buffers: what is packed before the first step and unpacked after the last.

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "distattn/engine.hpp"
#include "kernels/kernels.hpp"

namespace distattn::backends {

/// The kernels that staging needs, of the device whose buffers it fills: each does a list of operations in order or
/// side by side, and the lists one after the other.
class StagingKernels {
 public:
  virtual ~StagingKernels() = default;
  virtual void rearrange(std::span<const kernels::RearrangeArgs> operations) = 0;
  virtual void delta(std::span<const kernels::DeltaArgs> operations) = 0;
  virtual void accumulate(std::span<const kernels::AccumulateArgs> operations) = 0;
};

/// delta = rowsum(dO ∘ O) needs O packed, at most `rows` of one head at a time and `at_hand` such pieces together, in
/// scratch memory of the buffers' space.
struct DeltaPieces {
  std::int64_t rows = 0;
  int at_hand = 1;
  std::function<std::shared_ptr<std::byte>(std::size_t bytes)> allocate;
};

/// Prepared once for a program; load and store allocate nothing.
class Staging {
 public:
  Staging(const BufferTable& buffers, const DeltaPieces& pieces);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void load(const Bindings& bindings, StagingKernels& kernels);
  /// Adds the gradients of key heads that groups share, in group order, into the first group's buffer, and unpacks.
  void store(const Bindings& bindings, StagingKernels& kernels);

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

  void place_input(const BufferTable& buffers, BufferId buffer, std::int64_t token, const DeltaPieces& pieces);
  void place_result(const BufferTable& buffers, BufferId buffer, std::int64_t token);
  void place_delta(const BufferTable& buffers, BufferId query, std::int64_t token, const DeltaPieces& pieces);
  void place_sums(const BufferTable& buffers, const std::map<std::pair<SegmentId, int>, BufferId>& gradients);
  static ConstTensorView view(const Bindings& bindings, Tensor tensor);
  static TensorView result_view(const Bindings& bindings, Tensor tensor);
  std::span<const kernels::RearrangeArgs> packing(const Bindings& bindings, std::span<const Piece> pieces);
  std::span<const kernels::RearrangeArgs> unpacking(const Bindings& bindings, std::span<const Piece> pieces);

  std::vector<Piece> inputs_, results_;
  std::vector<Piece> outputs_;              // of o, into scratch_
  std::vector<kernels::DeltaArgs> deltas_;  // of the same rows as outputs_
  std::size_t pieces_at_hand_;
  std::int64_t piece_rows_ = 1;
  std::shared_ptr<std::byte> scratch_;  // of pieces_at_hand_ pieces
  std::vector<std::vector<kernels::AccumulateArgs>> sums_;  // one list after the other
  std::vector<kernels::RearrangeArgs> arguments_;
};

}  // namespace distattn::backends

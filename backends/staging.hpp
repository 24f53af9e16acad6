#pragma once
/// Between a rank's tensors and its own buffers: what is used where it lies, and what is packed before the first step
/// and unpacked after the last.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backends/placement.hpp"
#include "backends/shared_keys.hpp"
#include "backends/sinks.hpp"
#include "backends/staging_kernels.hpp"
#include "backends/tensors.hpp"
#include "distattn/engine.hpp"
#include "kernels/kernels.hpp"

namespace distattn::backends {

/// delta = rowsum(dO ∘ O) is computed piece by piece, at most `rows` of one head each. Where O is not used in place,
/// `at_hand` pieces of it are packed together, in scratch memory of the buffers' space.
struct DeltaPieces {
  std::int64_t rows = 0;
  int at_hand = 1;
  std::function<std::shared_ptr<std::byte>(std::size_t bytes)> allocate;
};

/// Prepared once for a program; load and store allocate nothing.
class Staging {
 public:
  /// load() moves what need not be packed into the tensors; without a placement all is packed.
  Staging(const BufferTable& buffers, const DeltaPieces& pieces, Placement* placement = nullptr);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void load(const Bindings& bindings, StagingKernels& kernels);
  /// Adds to dq what was left out of it, and the gradients of key heads that groups share, in group order, into the
  /// first group's buffer, and unpacks.
  /// `bindings` are those that load() was given.
  void store(const Bindings& bindings, StagingKernels& kernels);

 private:
  /// Some heads of some tokens of a tensor, and the part that holds them.
  struct Piece {
    Tensor tensor{};
    std::int64_t batch = 0, token = 0, head = 0;  // of its first element in the tensor
    kernels::RearrangeArgs packed;                // the part's side; a call fills in the tensor's
    BufferId buffer{};
    std::size_t part = 0;
    std::size_t bytes = 0;  // of the part
    bool may_move = false, in_place = false;
  };
  /// delta of some tokens of one head.
  struct DeltaPiece {
    BufferId query{};
    std::int64_t batch = 0, head = 0, token = 0;     // of the first in the query's parts
    std::int64_t tensor_head = 0, tensor_token = 0;  // and in o
    kernels::RearrangeArgs packed_o;                 // scratch memory's side; a call fills in the tensor's
    kernels::DeltaArgs packed;                       // as if all was packed
  };
  using Part = BufferTable::Part;

  void place_input(const BufferTable& buffers, BufferId buffer, std::int64_t token, const DeltaPieces& pieces);
  void place_result(const BufferTable& buffers, BufferId buffer, std::int64_t token);
  void place_delta(const BufferTable& buffers, BufferId query, std::int64_t token, const DeltaPieces& pieces);
  void place_sums(const BufferTable& buffers, const std::map<std::pair<SegmentId, int>, BufferId>& gradients);
  void place(const Bindings& bindings, std::span<Piece> pieces);
  void compute_delta(const Bindings& bindings, StagingKernels& kernels);
  std::span<const kernels::RearrangeArgs> packing(const Bindings& bindings);
  std::span<const kernels::RearrangeArgs> unpacking(const Bindings& bindings);

  Placement* const placement_;
  const Pass pass_;
  std::vector<Piece> inputs_, results_;
  std::vector<DeltaPiece> deltas_;
  std::size_t pieces_at_hand_;
  std::int64_t piece_rows_ = 1;
  std::shared_ptr<std::byte> scratch_;                      // of pieces_at_hand_ pieces
  std::vector<std::vector<kernels::AccumulateArgs>> sums_;  // one list after the other
  SharedKeys shared_keys_;
  std::optional<Sinks> sinks_;  // of problems that have sink logits
  std::vector<kernels::RearrangeArgs> arguments_;
  std::vector<kernels::DeltaArgs> delta_arguments_;
};

}  // namespace distattn::backends

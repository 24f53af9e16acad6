#pragma once
/// In which order a rank hands its exchanges to NCCL.

#include <map>

#include "distattn/engine.hpp"

namespace distattn::backends::nccl {

/// Which lanes' exchanges go over NCCL.
enum class Lanes : std::uint8_t { both, near };

/// Two lanes are two communicators on one GPU. Where their kernels do not fit side by side, ranks that started them in
/// different orders would wait for each other for ever. All ranks therefore hand them over as the program lists them:
/// by step, near before far. That they also start so on the GPU is Library::keeps_order, or the transport's part.
/// Programs of different tables have no order between them. Not thread-safe.
class IssueOrder {
 public:
  explicit IssueOrder(Lanes lanes) : lanes_(lanes) {}

  /// Whether a pass over the program is to begin.
  bool begins(const BufferTable& buffers) const { return next_.find(&buffers) == next_.end(); }
  /// Whether `step` is the next exchange of its program.
  bool is_next(const Step& step, const BufferTable& buffers) const;
  /// `step`, which is the next, has been handed over. After the last one the program starts over.
  void pass(const Step& step, const BufferTable& buffers);

 private:
  std::size_t exchange_from(const RankProgram& program, std::size_t step) const;

  const Lanes lanes_;
  std::map<const BufferTable*, std::size_t> next_;  // of programs that have begun and not ended
};

}  // namespace distattn::backends::nccl

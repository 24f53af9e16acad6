#pragma once
/// What may compute tiles on a GPU in place of the kernels of kernels/cuda.

#include <memory>
#include <string>

#include "backends/cuda/driver.hpp"
#include "kernels/arguments.hpp"

namespace distattn::backends::cuda {

/// One operation, prepared once and started many times.
class PreparedAttend {
 public:
  virtual ~PreparedAttend() = default;
  /// Device memory that start() needs beside its operands.
  virtual std::size_t scratch_bytes() const = 0;
  /// Starts it. `scratch` is 256-byte aligned, and nothing else uses it until this has run. Throws Error(environment).
  virtual void start(Stream& stream, std::byte* scratch) const = 0;
};

/// Used by one thread at a time, and longer than what it prepares.
class AttendProvider {
 public:
  virtual ~AttendProvider() = default;
  /// The features that it has in that pass.
  virtual Features features(Pass pass) const = 0;
  /// Why no tile of that shape can be computed; empty if there may be tiles that can.
  virtual std::string why_not(const kernels::TileShape& shape, Pass pass) const = 0;
  /// Throws Error(usage) naming what it cannot express.
  virtual std::unique_ptr<PreparedAttend> prepare(const kernels::AttendArgs& args) = 0;
  /// Likewise; last bits of gradients may differ from run to run.
  virtual std::unique_ptr<PreparedAttend> prepare(const kernels::AttendBackwardArgs& args) = 0;
};

}  // namespace distattn::backends::cuda

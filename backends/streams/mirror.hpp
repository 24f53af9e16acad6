#pragma once
/// A rank's tensors that lie in host memory, and their copies on the device.

#include <array>
#include <memory>

#include "backends/streams/stream.hpp"
#include "distattn/engine.hpp"

namespace distattn::backends {

/// Keeps its device memory from run to run. Tensors that lie there are used where they are.
class Mirror {
 public:
  explicit Mirror(Streams& driver) : driver_(driver) {}

  /// What `pass` reads, on the device: host tensors are copied on `stream`.
  Bindings inputs(const Bindings& bindings, Pass pass, Stream& stream);
  /// Where it writes, on the device. What lies between a result's elements in host memory is kept.
  Bindings results(const Bindings& bindings, Pass pass, Stream& stream);
  /// Whether any of them lies in host memory.
  static bool fetches(const Bindings& bindings, Pass pass);
  /// Copies results to host tensors.
  void fetch(const Bindings& bindings, Pass pass, Stream& stream);

 private:
  struct Copy {
    std::shared_ptr<std::byte> memory;
    std::size_t bytes = 0;
  };
  template <class Byte>
  BasicTensorView<Byte> mirrored(const BasicTensorView<Byte>& tensor, Copy& copy, bool copy_in, Stream& stream);
  void fetch(const TensorView& tensor, const Copy& copy, Stream& stream);

  Streams& driver_;
  Copy q_, k_, v_, o_, lse_, lse_low_, d_o_, dq_, dk_, dv_, sink_logits_, dsink_logits_, max_logit_;
};

}  // namespace distattn::backends

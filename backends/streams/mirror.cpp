#include "backends/streams/mirror.hpp"

#include "backends/tensors.hpp"
#include "distattn/index.hpp"

namespace distattn::backends {
namespace {

/// Whether nothing lies between its elements.
bool is_dense(const TensorView& tensor) {
  const std::int64_t count = tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3];
  return extent_of(tensor).bytes() == index(count) * size_of(tensor.dtype);
}

}  // namespace

template <class Byte>
BasicTensorView<Byte> Mirror::mirrored(const BasicTensorView<Byte>& tensor, Copy& copy, bool copy_in, Stream& stream) {
  if (tensor.data == nullptr || tensor.space == driver_.space()) return tensor;
  const Extent extent = extent_of(tensor);
  const std::size_t bytes = extent.bytes();
  if (bytes > copy.bytes) copy = {driver_.allocate(bytes, driver_.space()), bytes};
  if (copy_in && bytes > 0) stream.copy(copy.memory.get(), extent.begin, bytes);
  BasicTensorView<Byte> on_device = tensor;
  on_device.data = copy.memory.get() + (tensor.data - extent.begin);
  on_device.space = driver_.space();
  return on_device;
}

Bindings Mirror::inputs(const Bindings& bindings, Pass pass, Stream& stream) {
  Bindings device;
  device.q = mirrored(bindings.q, q_, true, stream);
  device.k = mirrored(bindings.k, k_, true, stream);
  device.v = mirrored(bindings.v, v_, true, stream);
  device.sink_logits = mirrored(bindings.sink_logits, sink_logits_, true, stream);
  if (pass == Pass::forward) return device;
  device.o = mirrored(bindings.o, o_, true, stream);
  device.lse = mirrored(bindings.lse, lse_, true, stream);
  device.lse_low = mirrored(bindings.lse_low, lse_low_, true, stream);
  device.d_o = mirrored(bindings.d_o, d_o_, true, stream);
  return device;
}

Bindings Mirror::results(const Bindings& bindings, Pass pass, Stream& stream) {
  const auto result = [&](const TensorView& tensor, Copy& copy) {
    return mirrored(tensor, copy, !is_dense(tensor), stream);
  };
  Bindings device;
  if (pass == Pass::forward) {
    device.o = result(bindings.o, o_);
    device.lse = result(bindings.lse, lse_);
    device.lse_low = result(bindings.lse_low, lse_low_);
    device.max_logit = result(bindings.max_logit, max_logit_);
    return device;
  }
  device.dq = result(bindings.dq, dq_);
  device.dk = result(bindings.dk, dk_);
  device.dv = result(bindings.dv, dv_);
  device.dsink_logits = result(bindings.dsink_logits, dsink_logits_);
  return device;
}

bool Mirror::fetches(const Bindings& bindings, Pass pass) {
  const auto on_host = [](const TensorView& tensor) {
    return tensor.data != nullptr && tensor.space == MemorySpace::host;
  };
  const auto any_on_host = [&](auto... results) { return (on_host(results) || ...); };
  if (pass == Pass::forward) return any_on_host(bindings.o, bindings.lse, bindings.lse_low, bindings.max_logit);
  return any_on_host(bindings.dq, bindings.dk, bindings.dv, bindings.dsink_logits);
}

void Mirror::fetch(const Bindings& bindings, Pass pass, Stream& stream) {
  if (pass == Pass::forward) {
    fetch(bindings.o, o_, stream);
    fetch(bindings.lse, lse_, stream);
    fetch(bindings.lse_low, lse_low_, stream);
    fetch(bindings.max_logit, max_logit_, stream);
    return;
  }
  fetch(bindings.dq, dq_, stream);
  fetch(bindings.dk, dk_, stream);
  fetch(bindings.dv, dv_, stream);
  fetch(bindings.dsink_logits, dsink_logits_, stream);
}

void Mirror::fetch(const TensorView& tensor, const Copy& copy, Stream& stream) {
  const Extent extent = extent_of(tensor);
  if (tensor.space == driver_.space() || extent.bytes() == 0) return;
  const std::ptrdiff_t before = tensor.data - extent.begin;
  stream.copy(tensor.data - before, copy.memory.get(), extent.bytes());
}

}  // namespace distattn::backends

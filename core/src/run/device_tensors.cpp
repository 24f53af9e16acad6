#include "distattn/device_tensors.hpp"

namespace distattn {

DeviceTensors::DeviceTensors(Device& device, const Bindings& host) : device_(device), bindings_(host) {
  for (ConstTensorView* input : {&bindings_.q, &bindings_.k, &bindings_.v, &bindings_.d_o, &bindings_.sink_logits}) {
    if (auto memory = bring(*input)) inputs_.push_back(std::move(memory));
  }
  for (TensorView* result : {&bindings_.o, &bindings_.lse, &bindings_.lse_low, &bindings_.dq, &bindings_.dk,
                             &bindings_.dv, &bindings_.dsink_logits, &bindings_.max_logit}) {
    const TensorView before = *result;
    if (auto memory = bring(*result)) results_.push_back({before, std::move(memory)});
  }
}

/// The tensor's memory on the device; null where it stays in place.
template <class Byte>
std::shared_ptr<std::byte> DeviceTensors::bring(BasicTensorView<Byte>& tensor) {
  if (tensor.data == nullptr || tensor.space != MemorySpace::host || device_.space() == MemorySpace::host)
    return nullptr;
  const Extent extent = extent_of(tensor);
  std::shared_ptr<std::byte> memory = device_.allocate_tensor(extent.bytes());
  device_.copy(memory.get(), extent.begin, extent.bytes());
  tensor.data = memory.get() + (tensor.data - extent.begin);
  tensor.space = device_.space();
  return memory;
}

void DeviceTensors::fetch() {
  for (const Copy& copy : results_) {
    const Extent extent = extent_of(copy.host);
    std::byte* const begin = copy.host.data - (copy.host.data - extent.begin);
    device_.copy(begin, copy.memory.get(), extent.bytes());
  }
}

}  // namespace distattn

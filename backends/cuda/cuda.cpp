#include "backends/cuda/device.hpp"
#include "backends/registration.hpp"

namespace distattn::backends {

Registration register_cuda() {
  const cuda::Gpus& gpus = cuda::find_gpus();
  return {{"cuda", BackendKind::device, true, gpus.count > 0, gpus.why, gpus.version},
          [](const DeviceOptions& options) { return make_cuda_device(cuda::driver_for(options.local_rank), options); }};
}

}  // namespace distattn::backends

#include "backends/cuda/device.hpp"
#include "backends/registration.hpp"

namespace distattn::backends {

Registration register_cuda() {
  const cuda::Gpus& gpus = cuda::find_gpus();
  const bool usable = gpus.count > 0;
  const std::string why = gpus.why + (usable ? "; transports of host memory go through pinned memory" : "");
  return {{"cuda", BackendKind::device, true, usable, why, gpus.version},
          [](const DeviceOptions& options) { return make_cuda_device(cuda::driver_for(options.local_rank), options); }};
}

}  // namespace distattn::backends

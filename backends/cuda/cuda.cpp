#include "backends/cuda/device.hpp"
#include "backends/registration.hpp"

namespace distattn::backends {

Registration register_cuda() {
  const cuda::Gpus& gpus = cuda::find_gpus();
  const bool usable = gpus.count > 0;
  const std::string why =
      gpus.why + (usable ? "; transports that reach host memory alone go through pinned memory" : "");
  return {{"cuda", BackendKind::device, true, usable, why, gpus.version, {"own", "cudnn"}},
          [](const DeviceOptions& options, const MakeProvider& make_provider) {
            cuda::Driver& driver = cuda::driver_for(options.local_rank);
            return make_cuda_device(driver, options, make_provider ? make_provider(driver) : nullptr);
          }};
}

Registration register_own() {
  const cuda::Gpus& gpus = cuda::find_gpus();
  const bool usable = gpus.count > 0;
  return {{"own", BackendKind::provider, true, usable, usable ? "kernels of this project" : gpus.why, ""}, {}};
}

}  // namespace distattn::backends

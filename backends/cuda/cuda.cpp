#include "backends/cuda/device.hpp"
#include "backends/registration.hpp"

namespace distattn::backends {

Registration register_cuda() {
  Registration registration{
      {"cuda", BackendKind::device, true, false, "", "runtime " + cuda::runtime_version(), {"own", "cudnn"}},
      [](const DeviceOptions& options, const MakeProvider& make_provider) {
        cuda::Driver& driver = cuda::driver_for(options.local_rank);
        return make_cuda_device(driver, options, make_provider ? make_provider(driver) : nullptr);
      }};
  registration.look = [](BackendInfo& info) {
    const cuda::Gpus& gpus = cuda::find_gpus();
    info.usable = gpus.count > 0;
    info.why = gpus.why + (info.usable ? "; transports that reach host memory alone go through pinned memory" : "");
    info.version += ", driver " + gpus.driver_version;
  };
  return registration;
}

Registration register_own() {
  Registration registration{{"own", BackendKind::provider, true, false, "", ""}, {}};
  registration.look = [](BackendInfo& info) {
    const cuda::Gpus& gpus = cuda::find_gpus();
    info.usable = gpus.count > 0;
    info.why = info.usable ? "kernels of this project" : gpus.why;
  };
  return registration;
}

}  // namespace distattn::backends

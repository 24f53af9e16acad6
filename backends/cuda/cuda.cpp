#include "backends/cuda/device.hpp"
#include "backends/registration.hpp"

namespace distattn::backends {

static std::unique_ptr<Device> make_with_own_kernels(const DeviceOptions& options) {
  return make_cuda_device(cuda::driver_for(options.local_rank), options);
}

Registration register_cuda() {
  Registration registration{{"cuda", BackendKind::device, true, false, "", "runtime " + cuda::runtime_version()},
                            make_with_own_kernels};
  registration.look = [](BackendInfo& info) {
    const cuda::Gpus& gpus = cuda::find_gpus();
    info.usable = gpus.count > 0;
    info.why = gpus.why + (info.usable ? "; transports that reach host memory alone go through pinned memory" : "");
    info.version += ", driver " + gpus.driver_version;
  };
  return registration;
}

Registration register_own() {
  Registration registration{{.name = "own", .kind = BackendKind::provider, .built = true, .device = "cuda"},
                            make_with_own_kernels};
  registration.look = [](BackendInfo& info) {
    const cuda::Gpus& gpus = cuda::find_gpus();
    info.usable = gpus.count > 0;
    info.why = info.usable ? "kernels of this project" : gpus.why;
  };
  return registration;
}

}  // namespace distattn::backends

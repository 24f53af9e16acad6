#include "backends/cuda/device.hpp"
#include "backends/cudnn/provider.hpp"
#include "backends/registration.hpp"
#include "distattn/error.hpp"

namespace distattn::backends {

Registration register_cudnn() {
  Registration registration{{.name = "cudnn", .kind = BackendKind::provider, .built = true, .device = "cuda"},
                            [](const DeviceOptions& options) {
                              cuda::Driver& driver = cuda::driver_for(options.local_rank);
                              return make_cuda_device(driver, options,
                                                      cudnn::make_provider(cudnn::load_library(), driver));
                            }};
  registration.look = [](BackendInfo& info) {
    try {
      info.version = cudnn::load_library().version;
      const cuda::Gpus& gpus = cuda::find_gpus();
      info.usable = gpus.count > 0;
      info.why = info.usable ? "bf16 and fp16" : gpus.why;
    } catch (const Error& error) {
      info.why = error.what();
    }
  };
  return registration;
}

}  // namespace distattn::backends

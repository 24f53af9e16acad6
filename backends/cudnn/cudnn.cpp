#include "backends/cudnn/provider.hpp"
#include "backends/registration.hpp"
#include "distattn/error.hpp"

namespace distattn::backends {

Registration register_cudnn() {
  Registration registration{{"cudnn", BackendKind::provider, true, false, "", ""}, {}};
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
  registration.make_provider = [](cuda::Driver& driver) { return cudnn::make_provider(cudnn::load_library(), driver); };
  return registration;
}

}  // namespace distattn::backends

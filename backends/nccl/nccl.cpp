#include "backends/nccl/transport.hpp"
#include "backends/registration.hpp"

namespace distattn::backends {

Registration register_nccl() {
  BackendInfo info{
      "nccl", BackendKind::transport, true, false, "", "built with " + nccl::version_text(NCCL_VERSION_CODE)};
  try {
    info.version += ", loaded " + nccl::load_library().version;
    const cuda::Gpus& gpus = cuda::find_gpus();
    info.usable = gpus.count > 0;
    info.why = info.usable ? "ranks in different processes, each with a GPU of its own" : gpus.why;
  } catch (const Error& error) {
    info.why = error.what();
  }
  Registration registration{info, {}};
  registration.make_transport = [](Bootstrap& bootstrap) {
    return std::make_unique<nccl::NcclTransport>(nccl::load_library(), cuda::driver_for(bootstrap.local_rank()),
                                                 bootstrap);
  };
  return registration;
}

}  // namespace distattn::backends

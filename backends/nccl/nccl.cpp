#include "backends/nccl/split_transport.hpp"
#include "backends/nccl/transport.hpp"
#include "backends/registration.hpp"

namespace distattn::backends {
namespace {

/// Usable where there is a GPU and NCCL's library; `what` it does then.
Registration transport_of(const char* name, const char* what) {
  Registration registration{
      {name, BackendKind::transport, true, false, "", "built with " + nccl::version_text(NCCL_VERSION_CODE)}, {}};
  registration.look = [what](BackendInfo& info) {
    try {
      const nccl::Library& library = nccl::load_library();
      info.version += ", loaded " + library.version;
      if (!library.keeps_order) info.version += " (keeps no order: near and far exchanges take turns)";
      const cuda::Gpus& gpus = cuda::find_gpus();
      info.usable = gpus.count > 0;
      info.why = info.usable ? what : gpus.why;
    } catch (const Error& error) {
      info.why = error.what();
    }
  };
  return registration;
}

}  // namespace

Registration register_nccl() {
  Registration registration = transport_of("nccl", "ranks in different processes, each with a GPU of its own");
  registration.make_transport = [](Bootstrap& bootstrap) {
    return std::make_unique<nccl::NcclTransport>(nccl::load_library(), cuda::driver_for(bootstrap.local_rank()),
                                                 bootstrap);
  };
  return registration;
}

Registration register_nccl_ucx() {
  Registration registration = transport_of("nccl+ucx", "nccl between near ranks, ucx between far ones");
  registration.make_transport = [](Bootstrap& bootstrap) {
    auto far = distattn::make_transport("ucx", bootstrap);
    cuda::Driver& driver = cuda::driver_for(bootstrap.local_rank());
    auto near = std::make_unique<nccl::NcclTransport>(nccl::load_library(), driver, bootstrap, nccl::Lanes::near);
    return std::make_unique<nccl::SplitTransport>(driver, std::move(near), std::move(far));
  };
  return registration;
}

}  // namespace distattn::backends

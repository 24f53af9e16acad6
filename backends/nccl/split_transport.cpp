#include "backends/nccl/split_transport.hpp"

namespace distattn::backends::nccl {

SplitTransport::SplitTransport(const Library& library, cuda::Driver& driver, Bootstrap& bootstrap,
                               std::unique_ptr<Transport> far)
    : over_host_(std::move(far)),
      name_("nccl+" + std::string(over_host_->name())),
      near_(library, driver, bootstrap, Lanes::near),
      far_(driver, *over_host_) {
  DISTATTN_EXPECT(over_host_->reaches(MemorySpace::host));
  on_failure(nullptr);
}

/// The far half goes first, while the near one still waits for other ranks to end.
SplitTransport::~SplitTransport() { near_.on_failure(nullptr); }

Event SplitTransport::submit(const Step& step, BufferTable& buffers, std::span<const Event> after) {
  return step.lane == Lane::far ? far_.submit(step, buffers, after) : near_.submit(step, buffers, after);
}

void SplitTransport::abort(const Error& error) noexcept {
  near_.abort(error);
  far_.abort(error);
}

/// The control channel, which both halves have in common, calls one listener.
void SplitTransport::on_failure(std::function<void(const Error&)> listener) {
  near_.on_failure([this, listener = std::move(listener)](const Error& error) {
    far_.abort(error);
    if (listener) listener(error);
  });
}

}  // namespace distattn::backends::nccl

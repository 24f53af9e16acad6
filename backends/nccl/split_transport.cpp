#include "backends/nccl/split_transport.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

namespace distattn::backends::nccl {

SplitTransport::SplitTransport(cuda::Driver& driver, std::unique_ptr<Transport> near, std::unique_ptr<Transport> far)
    : ForwardingTransport(*near),
      over_(std::move(far)),
      name_(fmt::format("{}+{}", near->name(), over_->name())),
      near_(std::move(near)),
      staged_(over_->reaches(MemorySpace::cuda) ? nullptr : std::make_unique<StagedTransport>(driver, *over_)),
      far_(staged_ ? *staged_ : *over_) {
  on_failure(nullptr);
}

/// The far half goes first, while the near one still waits for other ranks to end.
SplitTransport::~SplitTransport() { near_->on_failure(nullptr); }

/// What is staged costs host memory as large as the program's, and registration takes time.
void SplitTransport::prepare(BufferTable& buffers) {
  const std::vector<Step>& steps = buffers.program().steps;
  const bool far = std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.lane == Lane::far; });
  if (far) far_.prepare(buffers);
}

Event SplitTransport::submit(const Step& step, BufferTable& buffers, std::span<const Event> after) {
  return step.lane == Lane::far ? far_.submit(step, buffers, after) : near_->submit(step, buffers, after);
}

void SplitTransport::abort(const Error& error) noexcept {
  near_->abort(error);
  far_.abort(error);
}

/// The control channel, which both halves have in common, calls one listener.
void SplitTransport::on_failure(std::function<void(const Error&)> listener) {
  near_->on_failure([this, listener = std::move(listener)](const Error& error) {
    far_.abort(error);
    if (listener) listener(error);
  });
}

}  // namespace distattn::backends::nccl

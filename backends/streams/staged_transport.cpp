#include "backends/streams/staged_transport.hpp"

#include <algorithm>

#include "backends/exchange.hpp"
#include "distattn/index.hpp"

namespace distattn::backends {
namespace {

using Part = BufferTable::Part;

/// The parts of the buffers that the step's messages of one kind, Send or Recv, name.
template <class Message, class Visit>
void for_each_part(const Step& step, BufferId Message::*buffer, const BufferTable& device, const BufferTable& host,
                   Visit visit) {
  for (const Op& op : step.ops) {
    const auto* message = std::get_if<Message>(&op);
    if (message == nullptr) continue;
    const auto on_device = device.parts(message->*buffer), on_host = host.parts(message->*buffer);
    for (std::size_t part = 0; part < on_device.size(); ++part) {
      if (on_device[part].shape.bytes > 0) visit(on_device[part], on_host[part]);
    }
  }
}

}  // namespace

StagedTransport::StagedTransport(Streams& driver, Transport& over)
    : ForwardingTransport(over),
      driver_(driver),
      near_{driver.open_stream(StreamPriority::high), {}},
      far_{driver.open_stream(StreamPriority::high), {}} {}

StagedTransport::~StagedTransport() {
  near_.stream->finish();
  far_.stream->finish();
}

Event StagedTransport::submit(const Step& step, BufferTable& buffers, std::span<const Event> after) {
  try {
    BufferTable& host = to_host(step, buffers, after);
    over().submit(step, host, {}).wait();
    return to_device(step, buffers, host);
  } catch (...) {
    return Event::failed(std::current_exception());
  }
}

BufferTable& StagedTransport::to_host(const Step& step, const BufferTable& buffers, std::span<const Event> after) {
  LaneState& lane = state_of(step.lane);
  Stream& stream = *lane.stream;
  try {
    ending_->look();
    if (begins_pass(step, buffers)) lane.origin = present(stream, *ending_);
    BufferTable& host = twin_of(buffers);
    wait_for_all(after, stream);
    for_each_part(step, &Send::source, buffers, host,
                  [&](const Part& from, const Part& into) { stream.copy(into.data, from.data, from.shape.bytes); });
    // Also without anything to send: what the twin receives may still be on its way from the last use of its slot.
    wait_on_host(*stream.mark(), *ending_);
    return host;
  } catch (...) {
    rethrow_at(place_of(rank(), step));
  }
}

Event StagedTransport::to_device(const Step& step, const BufferTable& buffers, const BufferTable& host) {
  const LaneState& lane = state_of(step.lane);
  Stream& stream = *lane.stream;
  try {
    for_each_part(step, &Recv::into, buffers, host,
                  [&](const Part& into, const Part& from) { stream.copy(into.data, from.data, from.shape.bytes); });
    return Event(std::make_shared<StreamEvent>(stream.mark(), ending_, lane.origin, place_of(rank(), step)));
  } catch (...) {
    rethrow_at(place_of(rank(), step));
  }
}

BufferTable& StagedTransport::twin_of(const BufferTable& buffers) {
  const std::scoped_lock lock(mutex_);
  const auto found =
      std::find_if(twins_.begin(), twins_.end(), [&](const Twin& twin) { return twin.of.lock() == buffers.owner(); });
  if (found != twins_.end()) return *found->table;
  std::erase_if(twins_, [](const Twin& twin) { return twin.of.expired(); });
  auto memory = driver_.allocate(std::max(slots_bytes(buffers.program()), std::size_t{1}), MemorySpace::host);
  twins_.push_back({buffers.owner(), std::make_unique<BufferTable>(buffers.outline(), buffers.program(), buffers.rank(),
                                                                   MemorySpace::host, std::move(memory))});
  return *twins_.back().table;
}

void StagedTransport::abort(const Error& error) noexcept {
  ending_->end(error);
  over().abort(error);
}

/// Listens itself only while somebody does: it may go before the other transport.
void StagedTransport::on_failure(std::function<void(const Error&)> listener) {
  if (!listener) return over().on_failure(nullptr);
  over().on_failure([this, listener = std::move(listener)](const Error& error) {
    ending_->end(error);
    listener(error);
  });
}

}  // namespace distattn::backends

#include "backends/inproc/transport.hpp"

namespace distattn::backends::inproc {

InprocTransport::InprocTransport(Hub& hub, Rank rank, const InprocOptions& options)
    : hub_(hub), rank_(rank), near_(hub, rank, Lane::near, options), far_(hub, rank, Lane::far, options) {}

Event InprocTransport::submit(const Step& step, BufferTable& buffers, std::span<const Event> after) {
  try {
    for (const Event& event : after) event.wait();
    ExchangeLane& lane = step.lane == Lane::far ? far_ : near_;
    lane.port.exchange(step, buffers, lane.exchange.collect(step, buffers));
    return {};
  } catch (...) {
    return Event::failed(std::current_exception());
  }
}

}  // namespace distattn::backends::inproc

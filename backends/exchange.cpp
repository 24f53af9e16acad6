#include "backends/exchange.hpp"

#include <algorithm>

namespace distattn::backends {

std::span<Packet> Exchange::collect(const Step& step, const BufferTable& buffers, std::span<const BufferId> left_out) {
  pieces_.clear();
  packets_.clear();
  first_piece_.clear();
  const auto is_wanted = [&](BufferId buffer) { return !std::binary_search(left_out.begin(), left_out.end(), buffer); };
  for (const Op& op : step.ops) {
    const auto* send = std::get_if<Send>(&op);
    if (send != nullptr && is_wanted(send->source)) add(true, send->to, buffers.parts(send->source));
  }
  for (const Op& op : step.ops) {
    const auto* recv = std::get_if<Recv>(&op);
    if (recv != nullptr && is_wanted(recv->into)) add(false, recv->from, buffers.parts(recv->into));
  }
  for (std::size_t i = 0; i < packets_.size(); ++i) {
    const std::size_t end = i + 1 < packets_.size() ? first_piece_[i + 1] : pieces_.size();
    packets_[i].pieces = {pieces_.data() + first_piece_[i], end - first_piece_[i]};
  }
  return packets_;
}

void Exchange::add(bool outgoing, Rank peer, std::span<const BufferTable::Part> parts) {
  if (packets_.empty() || packets_.back().outgoing != outgoing || packets_.back().peer != peer) {
    packets_.push_back({peer, outgoing, 0, {}});
    first_piece_.push_back(pieces_.size());
  }
  for (const BufferTable::Part& part : parts) {
    if (part.shape.bytes == 0) continue;
    pieces_.push_back({part.data, part.shape.bytes});
    packets_.back().bytes += part.shape.bytes;
  }
}

}  // namespace distattn::backends

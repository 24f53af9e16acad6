#include "backends/exchange.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "distattn/index.hpp"

namespace distattn::backends {
namespace {

constexpr const char* different_calls =
    "they make different calls): make the same calls on all ranks, in the same order";
constexpr const char* different_programs = "they run different programs): give all ranks the same input and options";

}  // namespace

std::string disagreement(Rank from, const PacketMark& sent, Rank to, const PacketMark& expected) {
  if (sent.pass != expected.pass) {
    return fmt::format("rank {} sends to rank {} in a {} pass what that rank expects in a {} pass ({}", from, to,
                       name_of(sent.pass), name_of(expected.pass), different_calls);
  }
  if (sent.step != expected.step) {
    return fmt::format("rank {} sends to rank {} in step {} what that rank expects in step {} ({}", from, to, sent.step,
                       expected.step, different_programs);
  }
  if (sent.bytes != expected.bytes) {
    return fmt::format("rank {} sends {} bytes to rank {} in step {}, where {} are expected ({}", from, sent.bytes, to,
                       sent.step, expected.bytes, different_programs);
  }
  if (sent.call != expected.call) {
    return fmt::format("rank {} sends to rank {} in step {} what belongs to another attention than that rank's ({}",
                       from, to, sent.step, different_calls);
  }
  return "";
}

bool begins_pass(const Step& step, const BufferTable& buffers) {
  const std::vector<Step>& steps = buffers.program().steps;
  const auto first = std::find_if(steps.begin(), steps.end(), [&](const Step& each) { return each.lane == step.lane; });
  return index(first - steps.begin()) == buffers.index_of(step);
}

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

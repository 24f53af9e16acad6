#include "cli/tools/draw/step_contents.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/src/format.hpp"

namespace distattn {
namespace {

std::string counted(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::string DrawnMessage::names() const {
  std::string text;
  for (const Value& value : values) text += (text.empty() ? "" : ", ") + to_string(value);
  return text;
}

StepContents::StepContents(const Schedule& schedule) : schedule_(schedule), tiles_(schedule.outline.sharding) {}

const Step& StepContents::step(Rank rank, StepId id) const { return schedule_.ranks[index(rank)].steps[index(id)]; }

const BufferDecl& StepContents::decl(Rank rank, BufferId buffer) const {
  return schedule_.ranks[index(rank)].buffers[index(buffer)];
}

std::vector<DrawnTile> StepContents::tiles(Rank rank, StepId id) const {
  std::vector<DrawnTile> tiles;
  const auto add = [&](BufferId query_buffer, const std::vector<KeyChunk>& keys) {
    const Value& query = decl(rank, query_buffer).value;
    for (const KeyChunk& chunk : keys) {
      const Value& key = decl(rank, chunk.key_value).value;
      tiles.push_back({query, key, tiles_.query(query.segment).owner, tiles_.key(key.segment).owner,
                       tiles_.pairs(query.segment, key.segment)});
    }
  };
  for (const Op& op : step(rank, id).ops) {
    if (const auto* forward = std::get_if<Attend>(&op)) add(forward->query, forward->keys);
    if (const auto* backward = std::get_if<AttendBackward>(&op)) add(backward->query, backward->keys);
  }
  return tiles;
}

std::vector<DrawnMessage> StepContents::messages(Rank rank, StepId id) const {
  std::vector<DrawnMessage> messages;
  for (const Op& op : step(rank, id).ops) {
    const auto* send = std::get_if<Send>(&op);
    if (send == nullptr) continue;
    const BufferDecl& buffer = decl(rank, send->source);
    if (messages.empty() || messages.back().to != send->to) messages.push_back({send->to, 0, {}});
    DrawnMessage& message = messages.back();
    message.bytes += static_cast<std::int64_t>(message_bytes(schedule_.outline, buffer.value, buffer.dtype));
    message.values.push_back(buffer.value);
  }
  return messages;
}

std::ptrdiff_t StepContents::receiver(Rank from, StepId id, Rank to) const {
  const Step& sending = step(from, id);
  const auto& steps = schedule_.ranks[index(to)].steps;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const Step& other = steps[s];
    if (other.number == sending.number && other.lane == sending.lane && other.due == sending.due) {
      return static_cast<std::ptrdiff_t>(s);
    }
  }
  return -1;
}

std::string StepContents::title(Rank rank, StepId id) const {
  const Step& step = this->step(rank, id);
  std::string text = fmt::format("step {}: ", step.number);
  if (step.lane != Lane::compute) {
    std::size_t received = 0;
    for (const Op& op : step.ops) received += std::holds_alternative<Recv>(op) ? 1 : 0;
    std::vector<std::string> parts;
    for (const DrawnMessage& message : messages(rank, id)) {
      parts.push_back(fmt::format("sends {} to rank {} ({})", message.names(), message.to,
                                  format_bytes(static_cast<double>(message.bytes))));
    }
    if (received > 0) parts.push_back("receives " + counted(received, "value"));
    return text + fmt::format("{}", fmt::join(parts, "; "));
  }
  const std::size_t tiles = this->tiles(rank, id).size();
  return text + (tiles > 0 ? counted(tiles, "tile") : "merges and conversions");
}

}  // namespace distattn

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <numeric>

#include "core/src/schedule/schedule_grid.hpp"
#include "distattn/index.hpp"
#include "distattn/schedule.hpp"

namespace distattn {
namespace {

std::string counted(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string headline(const Schedule& schedule) {
  const Outline& outline = schedule.outline;
  const Sharding& sharding = outline.sharding;
  std::string text =
      fmt::format("{} {}, {}: {} on {} layout", outline.name, name_of(outline.pass), name_of(outline.mode),
                  counted(schedule.ranks.size(), "rank"), name_of(sharding.layout.kind));
  if (outline.node_size > 0) text += fmt::format(", {} a node", outline.node_size);
  if (sharding.groups.size() > 1) text += ", " + counted(sharding.groups.size(), "head group");
  return text + fmt::format(", {} queries and {} keys\n", sharding.problem.seq_q, sharding.problem.seq_kv);
}

/// One rank's program, an operation a line.
class ProgramText {
 public:
  ProgramText(const Outline& outline, const RankProgram& program) : outline_(outline), program_(program) {}

  std::string text(Rank rank) {
    const std::size_t bytes = std::accumulate(program_.slots.begin(), program_.slots.end(), std::size_t{0});
    line("rank {}: {} in {}, {} bytes", rank, counted(program_.buffers.size(), "buffer"),
         counted(program_.slots.size(), "slot"), bytes);
    for (const BufferDecl& buffer : program_.buffers)
      line("  slot {}: {} as {}, {} bytes", buffer.slot, to_string(buffer.value), name_of(buffer.dtype), buffer.bytes);
    for (std::size_t s = 0; s < program_.steps.size(); ++s) add(s, program_.steps[s]);
    return std::move(text_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  void add(std::size_t id, const Step& step) {
    std::vector<std::string> after;
    for (const StepId before : step.after) after.push_back(fmt::format("#{}", index(before)));
    line("  #{} step {} {}{}{}", id, step.number, name_of(step.lane),
         step.due == step.number ? "" : fmt::format(", due in step {}", step.due),
         after.empty() ? "" : fmt::format(", after {}", fmt::join(after, " ")));
    for (const Op& op : step.ops) line("    {}", std::visit([this](const auto& o) { return describe(o); }, op));
    for (const Gather& gather : step.gathers) line("    all-gather {}", fmt::join(names(gather.buffers), ", "));
  }

  /// The value in a buffer, with its element type where that is the wire's and not the value's own.
  std::string name(BufferId buffer) const {
    const BufferDecl& decl = program_.buffers[index(buffer)];
    const std::string value = to_string(decl.value);
    return decl.dtype == dtype_of(outline_, decl.value.kind) ? value
                                                             : fmt::format("{} as {}", value, name_of(decl.dtype));
  }
  std::vector<std::string> names(const std::vector<BufferId>& buffers) const {
    std::vector<std::string> all;
    for (const BufferId buffer : buffers) all.push_back(name(buffer));
    return all;
  }
  std::size_t payload(BufferId buffer) const {
    const BufferDecl& decl = program_.buffers[index(buffer)];
    return message_bytes(outline_, decl.value, decl.dtype);
  }
  static const char* sign(Start start) { return start == Start::fresh ? "=" : "+="; }

  std::string describe(const Send& op) const {
    return fmt::format("send {} to rank {}, {} bytes", name(op.source), op.to, payload(op.source));
  }
  std::string describe(const Recv& op) const {
    return fmt::format("receive {} from rank {}, {} bytes", name(op.into), op.from, payload(op.into));
  }
  std::string describe(const Attend& op) const {
    std::vector<std::string> keys;
    for (const KeyChunk& chunk : op.keys) keys.push_back(name(chunk.key_value));
    return fmt::format("attend {} {} {} × {}", name(op.output), sign(op.start), name(op.query), fmt::join(keys, ", "));
  }
  std::string describe(const AttendBackward& op) const {
    std::vector<std::string> keys;
    for (const KeyChunk& chunk : op.keys)
      keys.push_back(fmt::format("{} ({} {})", name(chunk.key_value), name(chunk.dkey_value), sign(chunk.start)));
    return fmt::format("attend backward {} {} {} × {}", name(op.dquery), sign(op.start), name(op.query),
                       fmt::join(keys, ", "));
  }
  std::string describe(const Merge& op) const { return fmt::format("merge {} into {}", name(op.from), name(op.into)); }
  std::string describe(const Accumulate& op) const { return fmt::format("add {} to {}", name(op.from), name(op.into)); }
  std::string describe(const Convert& op) const {
    return fmt::format("convert {} to {}", name(op.from), name(op.into));
  }
  std::string describe(const Clear& op) const { return fmt::format("clear {}", name(op.buffer)); }

  const Outline& outline_;
  const RankProgram& program_;
  std::string text_;
};

std::string segment_list(const char* name, const std::vector<Segment>& segments) {
  std::string text;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Run& run = segments[i].run;
    const std::string stride = run.stride == 1 ? "" : fmt::format(" every {}", run.stride);
    text += fmt::format("{}{}: {} from {}{}, rank {}\n", name, i, counted(index(run.count), "token"), run.start, stride,
                        segments[i].owner);
  }
  return text;
}

}  // namespace

std::string to_text(const Schedule& schedule, bool details, std::size_t columns) {
  std::string text = headline(schedule) + '\n' + tile_grid(schedule, columns);
  if (!details) return text;
  text +=
      '\n' + segment_list("q", schedule.outline.sharding.queries) + segment_list("k", schedule.outline.sharding.keys);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    text += '\n' + ProgramText(schedule.outline, schedule.ranks[rank]).text(static_cast<Rank>(rank));
  return text;
}

}  // namespace distattn

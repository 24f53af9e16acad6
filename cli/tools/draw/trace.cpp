#include <map>
#include <nlohmann/json.hpp>

#include "cli/tools/draw.hpp"
#include "cli/tools/draw/step_contents.hpp"

namespace distattn {
namespace {

using Json = nlohmann::ordered_json;

/// The trace event format: times in microseconds, pid a rank of a panel, tid a lane.
class Trace {
 public:
  void add(const Drawing& drawing) {
    const StepContents contents(*drawing.schedule);
    for (const Panel& panel : drawing.panels) {
      add(*drawing.schedule, contents, panel);
      processes_ += static_cast<int>(drawing.schedule->ranks.size());
    }
  }

  std::string text() {
    const Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}};
    return trace.dump() + "\n";
  }

 private:
  void add(const Schedule& schedule, const StepContents& contents, const Panel& panel) {
    const std::string title = std::string(name_of(schedule.outline.pass)) + " " + panel.title;
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      const int process = processes_ + static_cast<int>(r);
      name(process, -1, "process_name", title + " rank " + std::to_string(r));
      for (const Lane lane : {Lane::compute, Lane::near, Lane::far}) {
        name(process, static_cast<int>(lane), "thread_name", name_of(lane));
      }
    }
    std::map<std::pair<Rank, StepId>, const Span*> spans;
    for (const Span& span : panel.timeline->spans) spans[{span.rank, span.step}] = &span;
    for (const Span& span : panel.timeline->spans) {
      const int process = processes_ + span.rank;
      events_.push_back({{"ph", "X"},
                         {"name", contents.title(span.rank, span.step)},
                         {"cat", name_of(span.lane)},
                         {"pid", process},
                         {"tid", static_cast<int>(span.lane)},
                         {"ts", span.start_s * 1e6},
                         {"dur", (span.end_s - span.start_s) * 1e6}});
      for (const DrawnMessage& message : contents.messages(span.rank, span.step)) {
        const std::ptrdiff_t other = contents.receiver(span.rank, span.step, message.to);
        const auto found = spans.find({message.to, static_cast<StepId>(other)});
        if (found != spans.end()) arrow(span, *found->second, message);
      }
    }
  }

  void name(int process, int thread, const char* kind, const std::string& name) {
    Json event = {{"ph", "M"}, {"name", kind}, {"pid", process}, {"args", {{"name", name}}}};
    if (thread >= 0) event["tid"] = thread;
    events_.push_back(std::move(event));
  }

  /// From the beginning of the sender's exchange to the end of the receiver's.
  void arrow(const Span& from, const Span& to, const DrawnMessage& message) {
    const Json begin = {{"ph", "s"},
                        {"id", ++arrows_},
                        {"name", message.names()},
                        {"cat", "message"},
                        {"pid", processes_ + from.rank},
                        {"tid", static_cast<int>(from.lane)},
                        {"ts", from.start_s * 1e6},
                        {"args", {{"bytes", message.bytes}}}};
    const Json end = {{"ph", "f"},
                      {"bp", "e"},
                      {"id", arrows_},
                      {"name", message.names()},
                      {"cat", "message"},
                      {"pid", processes_ + to.rank},
                      {"tid", static_cast<int>(to.lane)},
                      {"ts", to.end_s * 1e6}};
    events_.push_back(begin);
    events_.push_back(end);
  }

  Json events_ = Json::array();
  int processes_ = 0;
  int arrows_ = 0;
};

}  // namespace

std::string to_trace(std::span<const Drawing> drawings) {
  Trace trace;
  for (const Drawing& drawing : drawings) trace.add(drawing);
  return trace.text();
}

}  // namespace distattn

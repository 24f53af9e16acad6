#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/tools/draw.hpp"
#include "cli/tools/draw/step_contents.hpp"
#include "cli/tools/draw/svg_page.hpp"
#include "core/src/format.hpp"

namespace distattn {
namespace {

constexpr double page_width = 1240, plot_x = 76, plot_width = 1066, margin = 16;
constexpr double heading_height = 44, panel_heading = 26, axis_height = 30, legend_height = 30;

constexpr const char* style = R"(
text { font-family: Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #222222; }
.heading { font-size: 16px; font-weight: bold; }
.panel { font-size: 13px; font-weight: bold; }
.note { font-size: 11px; fill: #555555; }
.tile-name { font-size: 10px; pointer-events: none; }
.idle { fill: #e9ecef; }
.lane { fill: #f6f7f8; }
.tile { stroke: #ffffff; stroke-width: 0.5; }
.merge { fill: #495057; }
.near { fill: #4f7cac; fill-opacity: 0.6; stroke: #ffffff; stroke-width: 0.4; }
.far { fill: #d1495b; fill-opacity: 0.75; stroke: #ffffff; stroke-width: 0.4; }
.grid { stroke: #ced4da; stroke-width: 0.5; }
.message { stroke: #111111; stroke-width: 1.2; }
.messages { visibility: hidden; pointer-events: none; }
.exchange:hover .messages { visibility: visible; }
)";

/// Heights within a rank's row.
struct RowShape {
  double compute = 0, near = 0, far = 0, row = 0;
};

RowShape row_shape(std::size_t ranks, bool has_far) {
  const double row = std::clamp(720.0 / static_cast<double>(ranks), 15.0, 58.0);
  const double link = row * (has_far ? 0.17 : 0.24);
  return {row * 0.58, link, has_far ? link : 0, row};
}

/// A step of 1, 2 or 5 times a power of ten, for about eight ticks.
double tick_distance(double seconds) {
  const double rough = seconds / 8, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string tick_label(double seconds, double distance) {
  if (distance >= 0.1) return fmt::format("{:.1f} s", seconds);
  if (distance >= 1e-4) return fmt::format("{:.{}f} ms", seconds * 1e3, distance < 1e-3 ? 1 : 0);
  return fmt::format("{:.{}f} us", seconds * 1e6, distance < 1e-6 ? 2 : 0);
}

/// Draws one pass from some height of the page on.
class Picture {
 public:
  Picture(const Drawing& drawing, SvgPage& page, double y)
      : schedule_(*drawing.schedule), contents_(schedule_), panels_(drawing.panels), page_(page), y_(y) {
    bool has_far = false;
    for (const Panel& panel : panels_) {
      seconds_ = std::max(seconds_, panel.timeline->seconds);
      for (const Span& span : panel.timeline->spans) has_far = has_far || span.lane == Lane::far;
    }
    shape_ = row_shape(schedule_.ranks.size(), has_far);
    for (int r = 0; r < ranks(); ++r) colours_.push_back(circle_colour(r, ranks()));
  }

  /// The height below the picture.
  double draw() {
    heading();
    for (const Panel& panel : panels_) draw(panel);
    legend();
    return y_;
  }

 private:
  int ranks() const { return static_cast<int>(schedule_.ranks.size()); }
  double x_of(double seconds) const { return plot_x + (seconds_ > 0 ? plot_width * seconds / seconds_ : 0); }
  const std::string& colour(Rank rank) const { return colours_[index(rank)]; }
  double row_y(Rank rank) const { return y_ + shape_.row * rank; }

  void heading() {
    const Outline& outline = schedule_.outline;
    const Problem& problem = outline.sharding.problem;
    std::string shape = fmt::format("{} tokens", problem.seq_q);
    if (problem.seq_kv != problem.seq_q) shape = fmt::format("{} queries, {} keys", problem.seq_q, problem.seq_kv);
    std::string words = fmt::format("{} {}, {}, {} ranks, {}, {} heads of {}", outline.name, name_of(outline.pass),
                                    name_of(outline.mode), ranks(), shape, problem.heads, problem.head_dim);
    if (problem.kv_heads != problem.heads) words += fmt::format(", {} key heads", problem.kv_heads);
    page_.text(margin, y_ + 28, words, "heading");
    y_ += heading_height;
  }

  void draw(const Panel& panel) {
    const Timeline& timeline = *panel.timeline;
    page_.text(margin, y_ + 16,
               fmt::format("{}: {}, {:.1f} % idle", panel.title, format_seconds(timeline.seconds),
                           100 * std::max(0.0, timeline.idle_share(ranks()))),
               "panel");
    y_ += panel_heading;
    const double height = shape_.row * ranks();
    rows(timeline);
    const double distance = tick_distance(seconds_);
    for (int tick = 0; seconds_ > 0 && tick * distance <= seconds_ * 1.0001; ++tick) {
      const double x = x_of(tick * distance);
      page_.line(x, y_, x, y_ + height + 3, "grid");
      page_.text(x, y_ + height + 15, tick_label(tick * distance, distance), "note", Anchor::middle);
    }
    for (const Span& span : timeline.spans) {
      if (span.lane == Lane::compute) compute(span);
    }
    exchanges(timeline);
    y_ += height + axis_height;
  }

  /// Empty lanes, which remain to be seen where a rank waits.
  void rows(const Timeline& timeline) {
    std::vector<double> busy_s(schedule_.ranks.size(), 0);
    for (const Span& span : timeline.spans) {
      if (span.lane == Lane::compute) busy_s[index(span.rank)] += span.end_s - span.start_s;
    }
    const double width = x_of(timeline.seconds) - plot_x;
    const int every = shape_.row < 13 ? 4 : 1;
    for (Rank rank = 0; rank < ranks(); ++rank) {
      const double y = row_y(rank);
      page_.rect({plot_x, y, width, shape_.compute}, "idle");
      page_.rect({plot_x, y + shape_.compute, width, shape_.near + shape_.far}, "lane");
      if (rank % every != 0) continue;
      const double baseline = y + shape_.compute / 2 + 4;
      page_.rect({margin - 4, y + 1, 8, shape_.compute - 2}, "tile", colour(rank));
      page_.text(plot_x - 6, baseline, fmt::format("rank {}", rank), "note", Anchor::end);
      const double idle = timeline.seconds > 0 ? 1 - busy_s[index(rank)] / timeline.seconds : 0;
      page_.text(plot_x + plot_width + 8, baseline, fmt::format("{:.1f} % idle", 100 * std::max(0.0, idle)), "note");
    }
  }

  /// A step's tiles side by side, as wide as their visible pairs.
  void compute(const Span& span) {
    const double x0 = x_of(span.start_s), width = x_of(span.end_s) - x0, y = row_y(span.rank);
    const std::vector<DrawnTile> tiles = contents_.tiles(span.rank, span.step);
    std::int64_t pairs = 0;
    for (const DrawnTile& tile : tiles) pairs += tile.pairs;
    if (tiles.empty()) {
      page_.rect({x0, y, width, shape_.compute}, "merge", {}, tooltip(span));
      return;
    }
    double x = x0;
    for (const DrawnTile& tile : tiles) {
      const double part = pairs > 0 ? width * static_cast<double>(tile.pairs) / static_cast<double>(pairs) : width;
      const std::string name = fmt::format("q{}\u00b7k{}", index(tile.query.segment), index(tile.key.segment));
      page_.rect({x, y, part, shape_.compute}, "tile", colour(tile.key_owner),
                 fmt::format("{}: {}, keys of rank {}, queries of rank {}, {} pairs", tooltip(span), name,
                             tile.key_owner, tile.query_owner, tile.pairs));
      if (tile.query_owner != span.rank) {
        page_.rect({x, y, part, shape_.compute * 0.25}, "tile", colour(tile.query_owner));
      }
      if (shape_.compute >= 12 && part > 6.0 * static_cast<double>(name.size())) {
        page_.text(x + part / 2, y + shape_.compute * 0.72, name, "tile-name", Anchor::middle);
      }
      x += part;
    }
  }

  double lane_y(Rank rank, Lane lane) const {
    return row_y(rank) + shape_.compute + (lane == Lane::far ? shape_.near : 0) + 1;
  }
  double lane_height(Lane lane) const { return (lane == Lane::far ? shape_.far : shape_.near) - 1.5; }

  void exchanges(const Timeline& timeline) {
    std::map<std::pair<Rank, StepId>, const Span*> spans;
    for (const Span& span : timeline.spans) spans[{span.rank, span.step}] = &span;
    for (const Span& span : timeline.spans) {
      if (span.lane == Lane::compute) continue;
      page_.open_group("exchange");
      const double x = x_of(span.start_s);
      page_.rect({x, lane_y(span.rank, span.lane), x_of(span.end_s) - x, lane_height(span.lane)}, name_of(span.lane),
                 {}, tooltip(span));
      page_.open_group("messages");
      for (const DrawnMessage& message : contents_.messages(span.rank, span.step)) {
        const std::ptrdiff_t other = contents_.receiver(span.rank, span.step, message.to);
        const auto found = spans.find({message.to, static_cast<StepId>(other)});
        if (found == spans.end()) continue;
        page_.line(x, lane_y(span.rank, span.lane) + lane_height(span.lane) / 2, x_of(found->second->end_s),
                   lane_y(message.to, span.lane) + lane_height(span.lane) / 2, "message");
      }
      page_.close_group();
      page_.close_group();
    }
  }

  std::string tooltip(const Span& span) const {
    return fmt::format("rank {}, {} to {}, {}", span.rank, format_seconds(span.start_s), format_seconds(span.end_s),
                       contents_.title(span.rank, span.step));
  }

  void legend() {
    double x = margin;
    const auto entry = [&](std::string_view style_class, std::string_view fill, std::string_view words) {
      page_.rect({x, y_ + 4, 14, 10}, style_class, fill);
      page_.text(x + 19, y_ + 13, words, "note");
      x += 34 + 6.0 * static_cast<double>(words.size());
    };
    entry("tile", colour(0), "tile, in the colour of the rank that owns its keys");
    if (ranks() > 1) {
      page_.rect({x, y_ + 4, 14, 10}, "tile", colour(0));
      page_.rect({x, y_ + 4, 14, 3}, "tile", colour(ranks() / 2));
      page_.text(x + 19, y_ + 13, "edge: its queries are another rank's", "note");
      x += 240;
    }
    entry("merge", {}, "merges");
    entry("idle", {}, "idle");
    entry("near", {}, "near exchange");
    if (shape_.far > 0) entry("far", {}, "far exchange");
    page_.text(x, y_ + 13, "(point at an exchange for its messages)", "note");
    y_ += legend_height;
  }

  const Schedule& schedule_;
  StepContents contents_;
  const std::vector<Panel>& panels_;
  RowShape shape_;
  std::vector<std::string> colours_;
  SvgPage& page_;
  double y_;
  double seconds_ = 0;
};

}  // namespace

std::string to_svg(std::span<const Drawing> drawings) {
  SvgPage page;
  double y = 0;
  for (const Drawing& drawing : drawings) y = Picture(drawing, page, y).draw();
  return page.finish(page_width, y + margin, style);
}

}  // namespace distattn

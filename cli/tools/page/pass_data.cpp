#include "cli/tools/page/pass_data.hpp"

#include <algorithm>
#include <vector>

#include "cli/tools/page/cells.hpp"
#include "cli/tools/page/rank_data.hpp"
#include "cli/tools/page/timeline_data.hpp"
#include "distattn/mask.hpp"

namespace distattn {
namespace {

using Json = nlohmann::ordered_json;

/// Beyond these no screen shows one of them: the page draws tiles whole.
constexpr std::size_t most_bands = 10'000;

Json segments_data(const std::vector<Segment>& segments) {
  Json list = Json::array();
  for (const Segment& segment : segments) {
    for (const std::int64_t number : {segment.run.start, segment.run.count, segment.run.stride}) list.push_back(number);
    list.push_back(segment.owner);
  }
  return list;
}

/// Bands within the positions that there are; null where they are too many.
Json bands_data(const Problem& problem) {
  const std::vector<Band> bands = bands_of(problem.mask);
  if (bands.size() > most_bands) return nullptr;
  Json list = Json::array();
  for (const Band& band : bands) {
    Json numbers = Json::array();
    for (const std::int64_t bound : {std::max(band.q0, problem.first_query()), std::min(band.q1, problem.seq_kv),
                                     std::max<std::int64_t>(band.k0, 0), std::min(band.k1, problem.seq_kv)}) {
      numbers.push_back(bound);
    }
    for (const std::int64_t bound : {band.lo, band.hi}) {
      numbers.push_back(bound <= -unbounded || bound >= unbounded ? Json(nullptr) : Json(bound));
    }
    list.push_back(std::move(numbers));
  }
  return list;
}

Json problem_data(const Problem& problem) {
  return {{"batch", problem.batch},
          {"seq", problem.seq_q},
          {"seq_kv", problem.seq_kv},
          {"heads", problem.heads},
          {"kv_heads", problem.kv_heads},
          {"head_dim", problem.head_dim},
          {"value_dim", problem.value_dim},
          {"dtype", name_of(problem.dtype)},
          {"wire", name_of(problem.wire_type())},
          {"mask", problem.mask.name}};
}

Json totals_data(const std::vector<RankTotals>& totals) {
  Json data = Json::object();
  const auto add = [&](const char* name, std::int64_t RankTotals::*member) {
    Json list = Json::array();
    for (const RankTotals& each : totals) list.push_back(each.*member);
    data[name] = std::move(list);
  };
  add("tiles", &RankTotals::tiles);
  add("pairs", &RankTotals::pairs);
  add("sent_near", &RankTotals::sent_near);
  add("sent_far", &RankTotals::sent_far);
  add("received", &RankTotals::received);
  add("memory", &RankTotals::memory_bytes);
  return data;
}

Json groups_data(const std::vector<HeadGroup>& groups) {
  Json list = Json::array();
  for (const HeadGroup& group : groups) list.push_back({group.q0, group.q_count});
  return list;
}

}  // namespace

std::size_t numbers_of_steps(const Drawing& drawing) {
  std::size_t numbers = 0;
  for (const RankProgram& program : drawing.schedule->ranks) {
    for (const Step& step : program.steps) {
      numbers += 2 + 2 * drawing.panels.size();
      for (const Op& op : step.ops) {
        numbers += std::holds_alternative<Send>(op) ? 3 : 0;
        if (const auto* forward = std::get_if<Attend>(&op)) numbers += forward->keys.size();
        if (const auto* backward = std::get_if<AttendBackward>(&op)) numbers += backward->keys.size();
      }
    }
  }
  return numbers;
}

Json pass_data(const Drawing& drawing, PageDetail detail) {
  const Schedule& schedule = *drawing.schedule;
  const Outline& outline = schedule.outline;
  const Sharding& sharding = outline.sharding;
  RankData ranks(schedule);
  int steps = 0;
  for (const RankProgram& program : schedule.ranks) {
    for (const Step& step : program.steps) steps = std::max(steps, step.number + 1);
  }
  std::int64_t tiles = 0;
  for (const RankTotals& totals : ranks.totals()) tiles += totals.tiles;
  const bool coarse = detail == PageDetail::coarse;
  Json data = {
      {"pass", name_of(outline.pass)},
      {"name", outline.name},
      {"mode", name_of(outline.mode)},
      {"node_size", outline.node_size},
      // A placement's, which nobody need have given: its segments follow.
      {"layout", sharding.layout.kind == LayoutKind::given ? "segments" : name_of(sharding.layout.kind)},
      {"problem", problem_data(sharding.problem)},
      {"bands", bands_data(sharding.problem)},
      {"queries", segments_data(sharding.queries)},
      {"keys", sharding.keys == sharding.queries ? Json(nullptr) : segments_data(sharding.keys)},
      {"groups", groups_data(sharding.groups)},
      {"counts", {{"steps", steps}, {"tiles", tiles}, {"messages", ranks.messages()}, {"values", ranks.values()}}},
      {"totals", totals_data(ranks.totals())}};
  if (coarse) {
    data["cells"] = cells_of(schedule);
  } else {
    data["sizes"] = ranks.sizes();
    Json list = Json::array();
    for (Rank rank = 0; rank < sharding.ranks; ++rank) list.push_back(ranks.steps_of(rank));
    data["steps"] = std::move(list);
  }
  Json timelines = Json::array();
  for (const Panel& panel : drawing.panels) timelines.push_back(timeline_data(schedule, panel, coarse));
  data["timelines"] = std::move(timelines);
  return data;
}

}  // namespace distattn

#include "cli/tools/draw.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "catch.hpp"
#include "distattn/lower.hpp"
#include "distattn/simulate.hpp"
#include "distattn/table.hpp"

using namespace distattn;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

/// A schedule and its predicted timeline.
struct Drawn {
  Schedule schedule;
  Timeline timeline;
};

Drawn drawn(const std::string& name, int ranks, Pass pass, Routes routes = {}) {
  Problem problem;
  problem.seq_q = problem.seq_kv = 1024 * ranks;
  problem.heads = problem.kv_heads = 8;
  problem.head_dim = problem.value_dim = 64;
  problem.dtype = DType::bf16;
  const auto recipe = std::get<Recipe>(resolve_schedule(name, problem, ranks));
  const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
  Drawn result;
  result.schedule = lower(Lowering(name, tiles, recipe.table(tiles, routes.node_size), pass, recipe.mode, routes));
  std::vector<ProgramSketch> sketches;
  for (Rank r = 0; r < ranks; ++r) {
    sketches.push_back(sketch(result.schedule.outline, *tiles, r, result.schedule.ranks[static_cast<std::size_t>(r)]));
  }
  result.timeline = simulate(result.schedule.outline, sketches, find_machine("dgx-a100x2"));
  return result;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::size_t tiles_of(const Schedule& schedule) {
  std::size_t tiles = 0;
  for (const RankProgram& program : schedule.ranks) {
    for (const Step& step : program.steps) {
      for (const Op& op : step.ops) {
        if (const auto* attend = std::get_if<Attend>(&op)) tiles += attend->keys.size();
        if (const auto* attend = std::get_if<AttendBackward>(&op)) tiles += attend->keys.size();
      }
    }
  }
  return tiles;
}

/// Whether every element that opens also closes, in order.
bool well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = svg.find('<', svg.find("<svg")); at != std::string::npos; at = svg.find('<', at + 1)) {
    const std::size_t end = svg.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = svg.substr(at + 1, end - at - 1);
    if (tag.find('<') != std::string::npos) return false;
    if (tag.front() == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  return open.empty();
}

}  // namespace

TEST_CASE("a picture shows every tile, merge and exchange of every rank", "[draw]") {
  const auto [name, ranks, pass] = GENERATE(table<std::string, int, Pass>({{"ring", 1, Pass::forward},
                                                                           {"ring", 4, Pass::forward},
                                                                           {"balanced", 4, Pass::backward},
                                                                           {"ulysses", 8, Pass::forward}}));
  INFO(name << " on " << ranks);
  const Drawn d = drawn(name, ranks, pass);
  const std::vector<Drawing> drawings = {{&d.schedule, {{"predicted", &d.timeline}}}};
  const std::string svg = to_svg(drawings);
  CHECK(well_formed(svg));
  CHECK(count(svg, " pairs</title>") == tiles_of(d.schedule));
  std::size_t exchanges = 0, merges = 0;
  for (const RankProgram& program : d.schedule.ranks) {
    for (const Step& step : program.steps) {
      if (step.lane != Lane::compute) {
        ++exchanges;
      } else {
        const bool attends = std::any_of(step.ops.begin(), step.ops.end(), [](const Op& op) {
          return std::holds_alternative<Attend>(op) || std::holds_alternative<AttendBackward>(op);
        });
        merges += attends ? 0 : 1;
      }
    }
  }
  CHECK(count(svg, "class=\"exchange\"") == exchanges);
  CHECK(count(svg, "merges and conversions</title>") == merges);
  CHECK(count(svg, "class=\"far\"") == 0);
  for (int r = 0; r < ranks; ++r) CHECK_THAT(svg, Contains(">rank " + std::to_string(r) + "<"));
}

TEST_CASE("a picture is XML whatever the name of a machine holds", "[draw]") {
  const Drawn ring = drawn("ring", 2, Pass::forward);
  const std::vector<Drawing> drawings = {{&ring.schedule, {{"predicted on a<b>\x01&\x1f\n\"c", &ring.timeline}}}};
  const std::string svg = to_svg(drawings);
  CHECK(well_formed(svg));
  CHECK_THAT(svg, Contains("predicted on a&lt;b&gt; &amp;  &quot;c"));
  CHECK(std::none_of(svg.begin(), svg.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n'; }));
}

TEST_CASE("panels share one scale of time", "[draw]") {
  const Drawn d = drawn("zigzag-ring", 4, Pass::forward);
  Timeline slower = d.timeline;
  slower.seconds *= 2;
  for (Span& span : slower.spans) {
    span.start_s *= 2;
    span.end_s *= 2;
  }
  const std::vector<Drawing> drawings = {{&d.schedule, {{"predicted", &d.timeline}, {"measured", &slower}}}};
  const std::string svg = to_svg(drawings);
  CHECK(well_formed(svg));
  CHECK(svg.find(">predicted: ") < svg.find(">measured: "));
  CHECK(count(svg, " pairs</title>") == 2 * tiles_of(d.schedule));
}

TEST_CASE("messages between nodes have a lane of their own", "[draw]") {
  const Drawn d = drawn("zigzag-ring", 16, Pass::forward, {8, 0});
  const std::vector<Drawing> drawings = {{&d.schedule, {{"predicted", &d.timeline}}}};
  const std::string svg = to_svg(drawings);
  CHECK(well_formed(svg));
  CHECK(count(svg, "class=\"far\"") > 0);
  CHECK_THAT(svg, Contains("far exchange"));
}

TEST_CASE("a trace has an event for every span and an arrow for every message", "[draw]") {
  const Drawn d = drawn("balanced", 5, Pass::forward);
  const std::vector<Drawing> drawings = {{&d.schedule, {{"predicted", &d.timeline}, {"measured", &d.timeline}}}};
  const json events = json::parse(to_trace(drawings)).at("traceEvents");
  std::size_t spans = 0;
  std::multiset<int> begins, ends;
  std::set<int> processes;
  for (const json& event : events) {
    const std::string kind = event.at("ph");
    if (kind == "X") {
      ++spans;
      CHECK(event.at("ts").get<double>() >= 0);
      CHECK(event.at("dur").get<double>() >= 0);
      processes.insert(event.at("pid").get<int>());
    }
    if (kind == "s") begins.insert(event.at("id").get<int>());
    if (kind == "f") ends.insert(event.at("id").get<int>());
  }
  std::size_t messages = 0;
  for (const RankProgram& program : d.schedule.ranks) {
    for (const Step& step : program.steps) {
      std::set<Rank> peers;
      for (const Op& op : step.ops) {
        if (const auto* send = std::get_if<Send>(&op)) peers.insert(send->to);
      }
      messages += peers.size();
    }
  }
  CHECK(spans == 2 * d.timeline.spans.size());
  CHECK(processes.size() == 10);
  CHECK(begins == ends);
  CHECK(begins.size() == 2 * messages);
  CHECK(messages > 0);
}

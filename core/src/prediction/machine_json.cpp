#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include <tuple>

#include "core/src/json_fields.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "distattn/machine.hpp"

namespace distattn {
namespace {

using nlohmann::json;
using Ordered = nlohmann::ordered_json;

constexpr std::array dtypes = {DType::fp64, DType::fp32, DType::bf16, DType::fp16};
constexpr std::array passes = {Pass::forward, Pass::backward};
constexpr int most_machine_ranks = 1 << 20, most_block = 1 << 16;

std::string seconds_field(Pass pass) { return fmt::format("{}_s", name_of(pass)); }
std::string launch_seconds_field(Pass pass) { return fmt::format("{}_launch_s", name_of(pass)); }
std::string pair_seconds_field(Pass pass) { return fmt::format("{}_pair_s", name_of(pass)); }

/// Points [[x, y], …] with rising x, both above 0.
std::vector<std::pair<double, double>> read_points(JsonFields& fields, const std::string& name, const std::string& x,
                                                   const std::string& y, const char* or_else) {
  const json& value = fields.at(name);
  const std::string points = fmt::format("[[{}, {}], ...]", x, y);
  const auto malformed = [&](const std::string& problem) {
    fields.fail(name, problem, fmt::format("write {}{} with rising {}s", or_else, points, x));
  };
  if (!value.is_array() || value.empty()) malformed("is not a curve");
  std::vector<std::pair<double, double>> read;
  for (const json& point : value) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number()) {
      malformed(fmt::format("has a point that is not [{}, {}]", x, y));
    }
    read.emplace_back(point[0].get<double>(), point[1].get<double>());
    if (read.back().first <= 0 || read.back().second <= 0) malformed("has a point that is not above 0");
    if (read.size() > 1 && read.back().first <= read[read.size() - 2].first) {
      malformed(fmt::format("has {}s that do not rise", x));
    }
  }
  return read;
}

/// A number, or points [[x, y], …].
RateCurve read_curve(JsonFields& fields, const std::string& name, const std::string& x = "tile",
                     const std::string& y = "flops_per_s") {
  if (fields.at(name).is_number()) return {{{0, fields.number_above_zero(name)}}};
  RateCurve curve;
  for (const auto& [at, rate] : read_points(fields, name, x, y, "a number, or ")) {
    curve.points.push_back({at, rate});
  }
  return curve;
}

/// One curve for all tiles, or {"full": curve, "partial": curve}.
KernelRates read_rates(JsonFields& fields, const std::string& name) {
  if (!fields.at(name).is_object()) {
    const RateCurve curve = read_curve(fields, name);
    return {curve, curve};
  }
  JsonFields kinds = fields.object(name);
  KernelRates rates{read_curve(kinds, "full"), read_curve(kinds, "partial")};
  kinds.finish();
  return rates;
}

void read_flops(JsonFields fields, Machine& machine) {
  for (const DType dtype : dtypes) {
    const std::string name = name_of(dtype);
    const json* value = fields.find(name);
    if (value == nullptr) continue;
    auto& rates = machine.rates[dtype];
    if (value->is_object() && value->contains("forward")) {
      JsonFields by_pass = fields.object(name);
      for (const Pass pass : passes) rates[pass] = read_rates(by_pass, name_of(pass));
      by_pass.finish();
    } else {
      rates.fill(read_rates(fields, name));
    }
  }
  fields.finish();
}

/// Descriptions without the field are older than launches.
RatesBy read_rates_by(JsonFields& top) {
  if (top.find("rates_by") == nullptr) return RatesBy::tile;
  const std::string by = top.text("rates_by");
  if (by != "tile" && by != "launch") top.fail("rates_by", fmt::format("is '{}'", by), "write \"tile\" or \"launch\"");
  return by == "tile" ? RatesBy::tile : RatesBy::launch;
}

Link read_link(JsonFields& fields) {
  return {fields.number_above_zero("bytes_per_s"), fields.number_from_zero("latency_s")};
}

Link read_near(JsonFields near) {
  const Link link = read_link(near);
  near.finish();
  return link;
}

std::pair<Link, LinkOwner> read_far(JsonFields far) {
  const Link link = read_link(far);
  const std::string owner = far.text("per");
  if (owner != "rank" && owner != "node") far.fail("per", fmt::format("is '{}'", owner), "write \"rank\" or \"node\"");
  far.finish();
  return {link, owner == "rank" ? LinkOwner::rank : LinkOwner::node};
}

/// The part that rates have of the machine's: of those of the largest tiles, which must agree.
double read_part(JsonFields& fields, const Machine& machine) {
  constexpr double most_apart = 1.05;
  Machine slower;
  read_flops(fields.object("flops_per_s"), slower);
  double least = 0, most = 0;
  const auto compare = [&](const RateCurve& mine, const RateCurve& whole) {
    const double part = mine.points.back().flops_per_s / whole.points.back().flops_per_s;
    least = least == 0 ? part : std::min(least, part);
    most = std::max(most, part);
  };
  for (const DType dtype : dtypes) {
    for (const Pass pass : passes) {
      const auto &mine = slower.rates[dtype][pass], &whole = machine.rates[dtype][pass];
      if (mine && !whole)
        fields.fail("flops_per_s", fmt::format("has {}, which the machine has not", name_of(dtype)), "leave it out");
      if (!mine) continue;
      compare(mine->full, whole->full);
      compare(mine->partial, whole->partial);
    }
  }
  if (least == 0) fields.fail("flops_per_s", "states no rate", "write speed");
  if (most > most_apart * least)
    fields.fail("flops_per_s", fmt::format("has from {:.2f} to {:.2f} of the machine's rates", least, most),
                "write speed, the one part that a rank has of all rates");
  return (least + most) / 2;
}

/// Beyond a million times faster or slower, sums of what ranks do lose what the others do.
double read_speed(JsonFields& fields) {
  constexpr double most = 1e6;
  const double speed = fields.number_above_zero("speed");
  if (speed < 1 / most || speed > most)
    fields.fail("speed", fmt::format("is {:g}", speed), "write one between 1e-6 and 1e6; other ranks have 1");
  return speed;
}

/// [{"rank": 3, "speed": 0.5}, {"node": 1, "speed": 0.8}, {"count": 8, "flops_per_s": …}]: the last that names a rank
/// counts; `count` ranks follow those that were counted before.
std::vector<double> read_speeds(JsonFields& owner, const Machine& machine) {
  const json& list = owner.at("ranks");
  if (!list.is_array()) owner.fail("ranks", "is no list", "write [{\"rank\": 3, \"speed\": 0.5}]");
  const int most = machine.nodes == 1 ? most_machine_ranks : machine.ranks();  // one node takes any number
  std::vector<double> speeds;
  const auto set = [&speeds](int begin, int count, double speed) {
    const auto end = index(begin) + index(count);
    if (speeds.size() < end) speeds.resize(end, 1);
    std::fill(speeds.begin() + begin, speeds.begin() + begin + count, speed);
  };
  int counted = 0;
  for (const json& object : list) {
    JsonFields fields(object, owner.origin(), fmt::format("ranks[{}]", &object - &list[0]));
    const bool is_counted = fields.find("count") != nullptr;
    if (object.contains("speed") && object.contains("flops_per_s")) {
      fields.fail("flops_per_s", "stands beside speed, which says the same", "keep one of them");
    }
    const double speed = is_counted && fields.find("speed") == nullptr
                             ? fields.find("flops_per_s") == nullptr ? 1 : read_part(fields, machine)
                             : read_speed(fields);
    if (is_counted) {
      if (counted == most) fields.fail("count", fmt::format("goes on after all {} ranks", most), "leave it out");
      const auto count = static_cast<int>(fields.integer("count", 1, most - counted));
      set(counted, count, speed);
      counted += count;
    } else if (fields.find("node") != nullptr) {
      const auto node = static_cast<int>(fields.integer("node", 0, machine.nodes - 1));
      set(node * machine.ranks_per_node, machine.ranks_per_node, speed);
    } else {
      set(static_cast<int>(fields.integer("rank", 0, most - 1)), 1, speed);
    }
    fields.finish();
  }
  return speeds;
}

MeasuredLinks read_measured(JsonFields fields, const Machine& machine) {
  MeasuredLinks links;
  if (fields.find("ranks") != nullptr) links.speeds = read_speeds(fields, machine);
  if (fields.find("near") != nullptr) links.near = read_near(fields.object("near"));
  if (fields.find("far") != nullptr) std::tie(links.far, links.far_owner) = read_far(fields.object("far"));
  fields.finish();
  return links;
}

void read_links(JsonFields& top, Machine& machine) {
  machine.near = read_near(top.object("near"));
  std::tie(machine.far, machine.far_owner) = read_far(top.object("far"));
  if (top.find("transports") == nullptr) return;
  JsonFields transports = top.object("transports");
  for (const auto& [name, links] : top.at("transports").items()) {
    machine.transports[name] = read_measured(transports.object(name), machine);
  }
  transports.finish();
}

TileCosts read_tiles(JsonFields fields) {
  TileCosts tiles;
  tiles.block = static_cast<int>(fields.integer("block", 1, most_block));
  for (const Pass pass : passes) {
    if (fields.find(seconds_field(pass)) != nullptr) {
      for (const auto& [dim, seconds] : read_points(fields, seconds_field(pass), "head_dim", "seconds", "")) {
        tiles.points[pass].push_back({dim, seconds});
      }
    }
    if (fields.find(pair_seconds_field(pass)) != nullptr) {
      tiles.pair_s[pass] = fields.number_from_zero(pair_seconds_field(pass));
    }
    if (fields.find(launch_seconds_field(pass)) != nullptr) {
      tiles.launch_s[pass] = fields.number_from_zero(launch_seconds_field(pass));
    }
  }
  fields.finish();
  return tiles;
}

FewQueries read_few(JsonFields fields) {
  FewQueries few;
  few.queries = static_cast<int>(fields.integer("queries", 1, most_block));
  for (const DType dtype : dtypes) {
    if (fields.find(name_of(dtype)) == nullptr) continue;
    JsonFields rates = fields.object(name_of(dtype));
    few.rates[dtype] = {rates.number_above_zero("flops_per_s"),
                        read_curve(rates, "key_bytes_per_s", "bytes", "key_bytes_per_s")};
    rates.finish();
  }
  fields.finish();
  return few;
}

Ordered speeds_to_json(const std::vector<double>& speeds) {
  Ordered list = Ordered::array();
  for (std::size_t rank = 0; rank < speeds.size(); ++rank) {
    if (speeds[rank] != 1) list.push_back({{"rank", rank}, {"speed", speeds[rank]}});
  }
  return list;
}

Ordered to_json(const Link& link) { return {{"bytes_per_s", link.bytes_per_s}, {"latency_s", link.latency_s}}; }

Ordered to_json(const Link& far, LinkOwner owner) {
  Ordered fields = to_json(far);
  fields["per"] = owner == LinkOwner::rank ? "rank" : "node";
  return fields;
}

Ordered to_json(const std::map<std::string, MeasuredLinks>& transports) {
  Ordered fields = Ordered::object();
  for (const auto& [name, links] : transports) {
    fields[name] = Ordered::object();
    if (links.near) fields[name]["near"] = to_json(*links.near);
    if (links.far) fields[name]["far"] = to_json(*links.far, links.far_owner);
    if (!links.speeds.empty()) fields[name]["ranks"] = speeds_to_json(links.speeds);
  }
  return fields;
}

Ordered to_json(const TileCosts& tiles) {
  Ordered fields = {{"block", tiles.block}};
  for (const Pass pass : passes) {
    Ordered points = Ordered::array();
    for (const TileCosts::Point& point : tiles.points[pass]) {
      points.push_back({point.head_dim, point.seconds});
    }
    if (!points.empty()) fields[seconds_field(pass)] = std::move(points);
    const double pair_s = tiles.pair_s[pass];
    if (pair_s > 0) fields[pair_seconds_field(pass)] = pair_s;
    const double launch_s = tiles.launch_s[pass];
    if (launch_s > 0) fields[launch_seconds_field(pass)] = launch_s;
  }
  return fields;
}

Ordered to_json(const RateCurve& curve) {
  if (curve.points.size() == 1 && curve.points.front().tile == 0) return curve.points.front().flops_per_s;
  Ordered points = Ordered::array();
  for (const RateCurve::Point& point : curve.points) points.push_back({point.tile, point.flops_per_s});
  return points;
}

Ordered to_json(const KernelRates& rates) {
  if (rates.full == rates.partial) return to_json(rates.full);
  return Ordered{{"full", to_json(rates.full)}, {"partial", to_json(rates.partial)}};
}

Ordered to_json(const FewQueries& few) {
  Ordered fields = {{"queries", few.queries}};
  for (const DType dtype : dtypes) {
    const auto& rates = few.rates[dtype];
    if (!rates) continue;
    fields[name_of(dtype)] = {{"flops_per_s", rates->flops_per_s},
                              {"key_bytes_per_s", to_json(rates->key_bytes_per_s)}};
  }
  return fields;
}

}  // namespace

Machine machine_from_json(std::string_view text, const std::string& origin) {
  const json parsed = parse_json(text, origin);
  JsonFields top(parsed, origin);
  Machine machine;
  if (top.find("schema_version") != nullptr) top.integer("schema_version", 1, 1);
  machine.name = top.find("name") != nullptr ? top.text("name") : origin;
  machine.nodes = static_cast<int>(top.integer("nodes", 1, most_machine_ranks));
  machine.ranks_per_node = static_cast<int>(top.integer("ranks_per_node", 1, most_machine_ranks));
  read_links(top, machine);
  read_flops(top.object("flops_per_s"), machine);
  machine.rates_by = read_rates_by(top);
  if (top.find("ranks") != nullptr) machine.speeds = read_speeds(top, machine);
  if (top.find("tiles") != nullptr) machine.tiles = read_tiles(top.object("tiles"));
  if (top.find("few_queries") != nullptr) machine.few = read_few(top.object("few_queries"));
  machine.memory_bytes = top.integer("memory_bytes", 1, std::int64_t{1} << 53);
  machine.cores = static_cast<int>(top.integer("cores", 0, most_machine_ranks));
  if (top.find("memory_bytes_per_s") != nullptr)
    machine.memory_bytes_per_s = top.number_from_zero("memory_bytes_per_s");
  if (top.find("measured") != nullptr) machine.measured = top.text("measured");
  if (top.find("backend") != nullptr) machine.backend = top.text("backend");
  if (top.find("sources") != nullptr) {
    JsonFields sources = top.object("sources");
    for (const auto& [field, source] : top.at("sources").items()) machine.sources[field] = sources.text(field);
  }
  top.finish();
  return machine;
}

std::string to_json(const Machine& machine) {
  Ordered flops = Ordered::object();
  for (const DType dtype : dtypes) {
    const auto& rates = machine.rates[dtype];
    if (!rates[0] || !rates[1]) continue;
    if (*rates[0] == *rates[1]) {
      flops[name_of(dtype)] = to_json(*rates[0]);
    } else {
      flops[name_of(dtype)] = {{"forward", to_json(*rates[0])}, {"backward", to_json(*rates[1])}};
    }
  }
  Ordered top = {{"schema_version", 1},
                 {"name", machine.name},
                 {"nodes", machine.nodes},
                 {"ranks_per_node", machine.ranks_per_node},
                 {"near", to_json(machine.near)},
                 {"far", to_json(machine.far, machine.far_owner)},
                 {"flops_per_s", flops},
                 {"rates_by", machine.rates_by == RatesBy::tile ? "tile" : "launch"},
                 {"memory_bytes", machine.memory_bytes},
                 {"memory_bytes_per_s", machine.memory_bytes_per_s},
                 {"cores", machine.cores},
                 {"measured", machine.measured},
                 {"sources", machine.sources}};
  if (!machine.transports.empty()) top["transports"] = to_json(machine.transports);
  if (!machine.backend.empty()) top["backend"] = machine.backend;
  if (!machine.speeds.empty()) top["ranks"] = speeds_to_json(machine.speeds);
  if (machine.tiles != TileCosts()) top["tiles"] = to_json(machine.tiles);
  if (machine.few.queries > 0) top["few_queries"] = to_json(machine.few);
  return top.dump(2) + "\n";
}

}  // namespace distattn

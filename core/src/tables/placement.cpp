#include "distattn/placement.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/src/json_fields.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

using nlohmann::json;
using Ordered = nlohmann::ordered_json;

constexpr int placement_schema = 1, most_ranks = 1 << 16, most_groups = 1 << 16, most_parts = 1 << 16;
constexpr std::int64_t most_positions = std::numeric_limits<std::int32_t>::max();
constexpr std::array stagings = {Staging::together, Staging::by_distance, Staging::by_distance_late, Staging::by_place,
                                 Staging::by_part};
constexpr std::array both_passes = {Pass::forward, Pass::backward};

const json& list_at(JsonFields& fields, const std::string& name) {
  const json& list = fields.at(name);
  if (!list.is_array()) fields.fail(name, "is no list", "write [...]");
  return list;
}

std::vector<std::int32_t> integers_at(JsonFields& fields, const std::string& name, std::int64_t least,
                                      std::int64_t most) {
  std::vector<std::int32_t> out;
  for (const json& value : list_at(fields, name)) {
    // As a number: to compile the order of JSON values takes seconds.
    const std::int64_t item = value.is_number_integer() ? value.get<std::int64_t>() : least - 1;
    if (item < least || item > most)
      fields.fail(name, fmt::format("has an item that is no integer from {} to {}", least, most), "correct it");
    out.push_back(static_cast<std::int32_t>(item));
  }
  return out;
}

int optional_integer(JsonFields& fields, const std::string& name, int usual, std::int64_t least, std::int64_t most) {
  return fields.find(name) == nullptr ? usual : static_cast<int>(fields.integer(name, least, most));
}

void read_segments(JsonFields& fields, const std::string& name, Placement& placement) {
  for (const json& object : list_at(fields, name)) {
    JsonFields segment(object, fields.origin(), fmt::format("{}[{}]", name, placement.segments.size()));
    Segment& read = placement.segments.emplace_back();
    read.run.start = segment.integer("start", 0, most_positions);
    read.run.count = segment.integer("count", 0, most_positions);
    read.run.stride = optional_integer(segment, "stride", 1, 1, most_positions);
    read.owner = static_cast<Rank>(segment.integer("owner", 0, placement.ranks - 1));
    placement.mesh_of.push_back(optional_integer(segment, "mesh", -1, 0, most_positions));
    placement.part_of.push_back(optional_integer(segment, "part", 0, 0, most_parts));
    segment.finish();
  }
  const auto none = [](std::int32_t mesh) { return mesh < 0; };
  if (std::all_of(placement.mesh_of.begin(), placement.mesh_of.end(), none)) placement.mesh_of.clear();
  const auto first = [](std::int32_t part) { return part == 0; };
  if (std::all_of(placement.part_of.begin(), placement.part_of.end(), first)) placement.part_of.clear();
}

void read_meshes(JsonFields& fields, Placement& placement) {
  if (fields.find("meshes") == nullptr) return;
  for (const json& object : list_at(fields, "meshes")) {
    JsonFields mesh(object, fields.origin(), fmt::format("meshes[{}]", placement.meshes.size()));
    PlacedMesh& read = placement.meshes.emplace_back();
    read.shape.groups = static_cast<int>(mesh.integer("groups", 1, most_groups));
    read.shape.rows = static_cast<int>(mesh.integer("rows", 1, most_ranks));
    read.shape.columns = static_cast<int>(mesh.integer("columns", 1, most_ranks));
    read.ranks = integers_at(mesh, "ranks", 0, placement.ranks - 1);
    mesh.finish();
  }
}

PlacedPass read_pass(JsonFields fields, int ranks) {
  PlacedPass pass;
  const std::string name = fields.find("staging") == nullptr ? name_of(pass.staging) : fields.text("staging");
  const auto found = std::find_if(stagings.begin(), stagings.end(), [&](Staging s) { return name == name_of(s); });
  if (found == stagings.end())
    fields.fail("staging", "is '" + name + "'", "choose together, by_distance, by_distance_late, by_place or by_part");
  pass.staging = *found;
  if (fields.find("last") != nullptr) pass.last = integers_at(fields, "last", 0, most_positions);
  if (!pass.last.empty() && pass.last.size() != index(ranks))
    fields.fail("last", fmt::format("has {} items", pass.last.size()),
                fmt::format("write one for each of {} ranks", ranks));
  fields.finish();
  return pass;
}

[[noreturn]] void refuse_mesh(std::size_t m, const std::string& problem, const std::string& suggestion) {
  refuse(fmt::format("meshes[{}] {} (placement): {}", m, problem, suggestion));
}

void check_mesh(const Placement& placement, std::size_t m) {
  const PlacedMesh& mesh = placement.meshes[m];
  const MeshShape& shape = mesh.shape;
  const std::string size = fmt::format("{}x{}x{}", shape.groups, shape.rows, shape.columns);
  const std::int64_t needed = std::int64_t{shape.groups} * shape.rows * shape.columns;
  if (needed != static_cast<std::int64_t>(mesh.ranks.size()))
    refuse_mesh(m, fmt::format("is {} and lists {} ranks", size, mesh.ranks.size()), fmt::format("list {}", needed));
  if (placement.groups % shape.groups != 0)
    refuse_mesh(m, fmt::format("has {} head groups of {}", shape.groups, placement.groups), "choose a divisor");
  std::vector<Rank> sorted = mesh.ranks;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) refuse_mesh(m, fmt::format("lists rank {} twice", *twice), "list each once");
}

}  // namespace

const char* name_of(Staging staging) {
  switch (staging) {
    case Staging::together:
      return "together";
    case Staging::by_distance:
      return "by_distance";
    case Staging::by_distance_late:
      return "by_distance_late";
    case Staging::by_place:
      return "by_place";
    case Staging::by_part:
      return "by_part";
  }
  return "?";
}

void check(const Placement& placement) {
  for (std::size_t m = 0; m < placement.meshes.size(); ++m) check_mesh(placement, m);
  for (std::size_t s = 0; s < placement.mesh_of.size(); ++s) {
    const std::int32_t mesh = placement.mesh_of[s];
    if (mesh < 0) continue;
    if (index(mesh) >= placement.meshes.size())
      refuse(
          fmt::format("segments[{}] is in mesh {} (there are {}): name one of them", s, mesh, placement.meshes.size()));
    const std::vector<Rank>& ranks = placement.meshes[index(mesh)].ranks;
    const Rank owner = placement.segments[s].owner;
    if (std::find(ranks.begin(), ranks.end(), owner) == ranks.end())
      refuse(fmt::format("segments[{}] belongs to rank {} (mesh {} does not list it): list it there", s, owner, mesh));
  }
}

namespace {

/// The layout of programs, as `show --format json` writes them: one for each pass, with the same owners.
Placement owners_in(const json& program, const std::string& origin) {
  JsonFields outline(program.at("outline"), origin, "outline");
  JsonFields sharding = outline.object("sharding");
  Placement placement;
  placement.ranks = static_cast<int>(sharding.integer("ranks", 1, most_ranks));
  read_segments(sharding, "queries", placement);
  check(placement);
  return placement;
}

bool is_program(const json& object) { return object.is_object() && object.contains("outline"); }

}  // namespace

Placement placement_from_json(std::string_view text, const std::string& origin) {
  const json object = parse_json(text, origin);
  if (is_program(object)) return owners_in(object, origin);
  if (object.is_array() && !object.empty() && is_program(object.front())) return owners_in(object.front(), origin);
  JsonFields fields(object, origin);
  fields.integer("schema_version", placement_schema, placement_schema);
  Placement placement;
  placement.ranks = static_cast<int>(fields.integer("ranks", 1, most_ranks));
  placement.groups = optional_integer(fields, "groups", 1, 1, most_groups);
  placement.node_size = optional_integer(fields, "node_size", 1, 1, most_ranks);
  read_segments(fields, "segments", placement);
  read_meshes(fields, placement);
  for (const Pass pass : both_passes) {
    if (fields.find(name_of(pass)) != nullptr)
      placement.passes[pass] = read_pass(fields.object(name_of(pass)), placement.ranks);
  }
  fields.finish();
  check(placement);
  return placement;
}

std::string to_json(const Placement& placement) {
  Ordered object = {{"schema_version", placement_schema},
                    {"ranks", placement.ranks},
                    {"groups", placement.groups},
                    {"node_size", placement.node_size}};
  Ordered& segments = object["segments"] = Ordered::array();
  for (std::size_t s = 0; s < placement.segments.size(); ++s) {
    const Segment& segment = placement.segments[s];
    Ordered& written = segments.emplace_back(Ordered{{"start", segment.run.start}, {"count", segment.run.count}});
    if (segment.run.stride != 1) written["stride"] = segment.run.stride;
    written["owner"] = segment.owner;
    if (!placement.mesh_of.empty() && placement.mesh_of[s] >= 0) written["mesh"] = placement.mesh_of[s];
    if (!placement.part_of.empty() && placement.part_of[s] > 0) written["part"] = placement.part_of[s];
  }
  Ordered& meshes = object["meshes"] = Ordered::array();
  for (const PlacedMesh& mesh : placement.meshes) {
    meshes.push_back({{"groups", mesh.shape.groups},
                      {"rows", mesh.shape.rows},
                      {"columns", mesh.shape.columns},
                      {"ranks", mesh.ranks}});
  }
  for (const Pass pass : both_passes) {
    const PlacedPass& how = placement.passes[pass];
    object[name_of(pass)] = {{"staging", name_of(how.staging)}, {"last", how.last}};
  }
  return object.dump();
}

}  // namespace distattn

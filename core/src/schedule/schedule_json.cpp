#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/src/json_fields.hpp"
#include "core/src/problem/mask_json.hpp"
#include "core/src/schedule/schedule_fields.hpp"
#include "distattn/error.hpp"

namespace distattn {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int program_schema = 1;
/// Whole numbers up to here survive every JSON reader, those that keep doubles included.
constexpr std::int64_t most_exact = (std::int64_t{1} << 53) - 1;

class Writer {
 public:
  template <class T>
  static ordered_json write(const T& value) {
    if constexpr (NamedEnum<T>) {
      return name_of(value);
    } else if constexpr (std::is_enum_v<T>) {
      return static_cast<std::underlying_type_t<T>>(value);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return value;
    } else if constexpr (std::is_same_v<T, Band>) {
      return band_to_json(value);
    } else if constexpr (std::is_same_v<T, Op>) {
      Writer out;
      out.object_["op"] = op_names[value.index()];
      std::visit([&](const auto& op) { fields_of(op, out); }, value);
      return std::move(out.object_);
    } else {
      Writer out;
      fields_of(value, out);
      return std::move(out.object_);
    }
  }
  template <class T>
  static ordered_json write(const std::vector<T>& values) {
    ordered_json list = ordered_json::array();
    for (const T& value : values) list.push_back(write(value));
    return list;
  }
  template <class T>
  void operator()(const char* name, const T& field, Range = Range::any) {
    object_[name] = write(field);
  }
  template <class T>
  void newer(const char* name, const T& field) {
    (*this)(name, field);
  }
  template <class T>
  void list_if_any(const char* name, const std::vector<T>& items) {
    if (!items.empty()) (*this)(name, items);
  }

 private:
  ordered_json object_ = ordered_json::object();
};

/// How many there are of what ids count.
struct Limits {
  std::int64_t ranks = 0, groups = 0, queries = 0, keys = 0, buffers = 0, slots = 0, steps = 0;
};

struct Bounds {
  std::int64_t least, most;
};

Bounds bounds_of(Range range, const Limits& limits) {
  switch (range) {
    case Range::any:
      return {-most_exact, most_exact};
    case Range::from_minus_one:
      return {-1, most_exact};
    case Range::from_zero:
      return {0, most_exact};
    case Range::from_one:
      return {1, most_exact};
    case Range::rank:
      return {0, limits.ranks - 1};
    case Range::contributor:
      return {-1, limits.ranks - 1};
    case Range::group:
      return {0, limits.groups - 1};
    case Range::query:
      return {0, limits.queries - 1};
    case Range::key:
      return {0, limits.keys - 1};
    case Range::buffer_or_none:
      return {-1, limits.buffers - 1};
    case Range::buffer:
      return {0, limits.buffers - 1};
    case Range::slot:
      return {0, limits.slots - 1};
    case Range::step:
      return {0, limits.steps - 1};
  }
  return {0, -1};
}

/// A value and where it stands, so that an error can say so.
struct Place {
  const json& value;
  std::string path;

  [[noreturn]] void fail(const std::string& problem, const std::string& suggestion) const {
    refuse(fmt::format("{} {} (schedule): {}", path, problem, suggestion));
  }
  std::string shown() const {
    const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    return text.size() <= 40 ? text : value.is_array() ? "a list" : value.is_object() ? "an object" : "a long text";
  }
};

class Reader {
 public:
  Reader(const Place& place, const Limits& limits) : fields_(place.value, "schedule", place.path), limits_(limits) {}

  template <class T>
  void operator()(const char* name, T& field, Range range = Range::any) {
    read({fields_.at(name), fields_.path_of(name)}, field, range, limits_);
  }
  template <class T>
  void newer(const char* name, T& field) {
    if (fields_.find(name) != nullptr) (*this)(name, field);
  }
  template <class T>
  void list_if_any(const char* name, std::vector<T>& items) {
    if (fields_.find(name) != nullptr) (*this)(name, items);
  }

  template <class T>
  static void read(const Place& place, T& out, Range range, const Limits& limits) {
    if constexpr (NamedEnum<T>) {
      read_name(place, out);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!place.value.is_boolean()) place.fail(fmt::format("is {}", place.shown()), "write true or false");
      out = place.value.get<bool>();
    } else if constexpr (std::is_same_v<T, double>) {
      if (!place.value.is_number()) place.fail(fmt::format("is {}", place.shown()), "write a number");
      out = place.value.get<double>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!place.value.is_string()) place.fail(fmt::format("is {}", place.shown()), "write it in quotes");
      out = place.value.get<std::string>();
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      read_integer(place, out, bounds_of(range, limits));
    } else if constexpr (std::is_same_v<T, Band>) {
      out = band_from_json(place.value, "schedule", place.path);
    } else if constexpr (std::is_same_v<T, Op>) {
      read_op(place, out, limits);
    } else {
      Reader reader(place, limits);
      fields_of(out, reader);
      reader.fields_.finish();
    }
  }
  template <class T>
  static void read(const Place& place, std::vector<T>& out, Range range, const Limits& limits) {
    if (!place.value.is_array()) place.fail(fmt::format("is {}", place.shown()), "write a list");
    for (const json& element : place.value) {
      const std::string path = fmt::format("{}[{}]", place.path, out.size());
      read({element, path}, out.emplace_back(), range, limits);
    }
  }
  static void read(const Place& place, RankProgram& out, Range, const Limits& of_all) {
    Reader reader(place, of_all);
    const auto size = [&](const char* name) {
      const json& list = reader.fields_.at(name);
      return list.is_array() ? static_cast<std::int64_t>(list.size()) : 0;
    };
    reader.limits_.buffers = size("buffers");
    reader.limits_.slots = size("slots");
    reader.limits_.steps = size("steps");
    fields_of(out, reader);
    reader.fields_.finish();
  }

 private:
  template <class T>
  static void read_integer(const Place& place, T& out, Bounds bounds) {
    bounds.most =
        std::min<std::int64_t>(bounds.most, sizeof(T) > 4 ? most_exact : std::numeric_limits<std::int32_t>::max());
    const json& value = place.value;
    const bool whole = value.is_number_integer() &&
                       !(value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{most_exact});
    if (!whole || value.get<std::int64_t>() < bounds.least || value.get<std::int64_t>() > bounds.most)
      place.fail(fmt::format("is {}", place.shown()),
                 bounds.least > bounds.most
                     ? "nothing is there to choose from"
                     : fmt::format("write a whole number from {} to {}", bounds.least, bounds.most));
    out = static_cast<T>(value.get<std::int64_t>());
  }

  template <class Enum>
  static void read_name(const Place& place, Enum& out) {
    std::vector<std::string> names;
    for (const Enum value : values_of<Enum>) {
      names.push_back(name_of(value));
      if (place.value != names.back()) continue;
      out = value;
      return;
    }
    place.fail(fmt::format("is {}", place.shown()), fmt::format("choose one of {}", fmt::join(names, ", ")));
  }

  template <std::size_t... I>
  static bool emplace_named(const json& name, Op& out, std::index_sequence<I...>) {
    return ((name == op_names[I] ? (static_cast<void>(out.emplace<I>()), true) : false) || ...);
  }
  static void read_op(const Place& place, Op& out, const Limits& limits) {
    Reader reader(place, limits);
    const json& name = reader.fields_.at("op");
    if (!emplace_named(name, out, std::make_index_sequence<std::variant_size_v<Op>>{}))
      Place{name, reader.fields_.path_of("op")}.fail("is unknown",
                                                     fmt::format("choose one of {}", fmt::join(op_names, ", ")));
    std::visit([&](auto& op) { fields_of(op, reader); }, out);
    reader.fields_.finish();
  }

  JsonFields fields_;
  Limits limits_;
};

Schedule read_schedule(const json& object) {
  JsonFields fields(object, "schedule");
  if (fields.integer("schema_version", 0, most_exact) != program_schema)
    fields.fail("schema_version", "is another", fmt::format("this distattn reads {}", program_schema));

  Schedule schedule;
  Limits limits;
  const Place outline{fields.at("outline"), "outline"}, ranks{fields.at("ranks"), "ranks"};
  fields.finish();
  if (!ranks.value.is_array() || ranks.value.empty())
    ranks.fail(fmt::format("is {}", ranks.shown()), "write a list of programs");
  limits.ranks = static_cast<std::int64_t>(ranks.value.size());
  Reader::read(outline, schedule.outline, Range::any, limits);
  check(schedule.outline, ranks.value.size());

  const Sharding& sharding = schedule.outline.sharding;
  limits.groups = static_cast<std::int64_t>(sharding.groups.size());
  limits.queries = static_cast<std::int64_t>(sharding.queries.size());
  limits.keys = static_cast<std::int64_t>(sharding.keys.size());
  Reader::read(ranks, schedule.ranks, Range::any, limits);
  return schedule;
}

}  // namespace

std::string to_json(const Schedule& schedule) {
  const ordered_json object = {{"schema_version", program_schema},
                               {"outline", Writer::write(schedule.outline)},
                               {"ranks", Writer::write(schedule.ranks)}};
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Schedule schedule_from_json(std::string_view text) { return read_schedule(parse_json(text, "schedule")); }

std::vector<Schedule> schedules_from_json(std::string_view text) {
  const json value = parse_json(text, "schedule");
  if (!value.is_array()) return {read_schedule(value)};
  std::vector<Schedule> schedules;
  for (const json& object : value) schedules.push_back(read_schedule(object));
  return schedules;
}

}  // namespace distattn

#include "core/src/json_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "distattn/error.hpp"

namespace distattn {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& origin) {
  constexpr int deepest = 64;
  std::vector<std::set<std::string>> keys;
  const auto refuse_twice = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > deepest) {
      refuse(fmt::format("lists and objects nest more than {} deep ({}) flatten it", deepest, origin));
    }
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      refuse(fmt::format("'{}' appears twice ({}) keep one", parsed.get<std::string>(), origin));
    }
    return true;
  };
  try {
    return json::parse(text, refuse_twice);
  } catch (const json::parse_error& error) {
    refuse(fmt::format("not JSON at byte {} ({}) correct it there", error.byte, origin));
  } catch (const json::out_of_range&) {
    refuse(fmt::format("a number is out of range ({}) write one that fits a double", origin));
  }
}

JsonFields::JsonFields(const json& object, std::string origin, std::string path)
    : object_(&object), origin_(std::move(origin)), path_(std::move(path)) {
  if (!object.is_object()) {
    refuse(fmt::format("{} is not an object ({}) write it in braces", path_.empty() ? "the file" : path_, origin_));
  }
}

std::string JsonFields::path_of(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }

void JsonFields::fail(const std::string& name, const std::string& problem, const std::string& suggestion) const {
  refuse(fmt::format("{} {} ({}) {}", path_of(name), problem, origin_, suggestion));
}

const json* JsonFields::find(const std::string& name) {
  asked_.insert(name);
  const auto found = object_->find(name);
  return found == object_->end() ? nullptr : &*found;
}

const json& JsonFields::at(const std::string& name) {
  const json* value = find(name);
  if (value == nullptr) fail(name, "is missing", "add it");
  return *value;
}

JsonFields JsonFields::object(const std::string& name) { return {at(name), origin_, path_of(name)}; }

double JsonFields::number(const std::string& name) {
  const json& value = at(name);
  if (!value.is_number()) fail(name, fmt::format("is {} and not a number", value.dump()), "write a number");
  const double result = value.get<double>();
  if (!std::isfinite(result)) fail(name, "is not finite", "write a finite number");
  return result;
}

double JsonFields::number_above_zero(const std::string& name) {
  const double value = number(name);
  if (value <= 0) fail(name, fmt::format("is {}", value), "write a number above 0");
  return value;
}

double JsonFields::number_from_zero(const std::string& name) {
  const double value = number(name);
  if (value < 0) fail(name, fmt::format("is {}", value), "write 0 or more");
  return value;
}

std::int64_t JsonFields::integer(const std::string& name, std::int64_t least, std::int64_t most) {
  const double value = number(name);
  if (value != std::floor(value) || value < static_cast<double>(least) || value > static_cast<double>(most)) {
    fail(name, fmt::format("is {}", value), fmt::format("write a whole number from {} to {}", least, most));
  }
  return static_cast<std::int64_t>(value);
}

std::string JsonFields::text(const std::string& name) {
  const json& value = at(name);
  if (!value.is_string()) fail(name, fmt::format("is {} and not a text", value.dump()), "write it in quotes");
  return value.get<std::string>();
}

void JsonFields::finish() const {
  for (const auto& [name, value] : object_->items()) {
    if (!asked_.contains(name)) fail(name, "is unknown", fmt::format("use one of {}", fmt::join(asked_, ", ")));
  }
}

}  // namespace distattn

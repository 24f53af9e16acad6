#include "core/src/json_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "distattn/error.hpp"

namespace distattn {

using nlohmann::json;

namespace {

/// Builds the tree event by event: nlohmann's own callback looks through all elements of a list after each of them.
class TreeBuilder final : public nlohmann::json_sax<json> {
 public:
  explicit TreeBuilder(const std::string& origin) : origin_(origin) {}

  json take() { return std::move(root_); }

  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& key) override {
    if (open_.back()->contains(key)) refuse(fmt::format("'{}' appears twice ({}): keep one", key, origin_));
    key_ = key;
    return true;
  }
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(json::binary_t& value) override { return add(json::binary(std::move(value))); }
  bool parse_error(std::size_t position, const std::string&, const json::exception& error) override {
    if (dynamic_cast<const json::out_of_range*>(&error) != nullptr) {
      refuse(fmt::format("a number is out of range ({}): write one that fits a double", origin_));
    }
    refuse(fmt::format("not JSON at byte {} ({}): correct it there", position, origin_));
  }

 private:
  json& put(json value) {
    if (open_.empty()) return root_ = std::move(value);
    json& into = *open_.back();
    if (into.is_object()) return into[key_] = std::move(value);
    into.push_back(std::move(value));
    return into.back();
  }
  template <class Value>
  bool add(Value&& value) {
    put(json(std::forward<Value>(value)));
    return true;
  }
  bool open(json empty) {
    constexpr std::size_t deepest = 64;
    if (open_.size() == deepest) {
      refuse(fmt::format("lists and objects nest more than {} deep ({}): flatten it", deepest, origin_));
    }
    open_.push_back(&put(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& origin_;
  json root_;
  std::vector<json*> open_;  // from the outermost; a list grows only while it is the innermost
  std::string key_;
};

void refuse_zero_byte(std::string_view text, const std::string& origin) {
  const std::size_t at = text.find('\0');
  if (at == text.npos) return;
  refuse(
      fmt::format("{} has a zero byte at byte {} (whatever reads C strings ends there): take it out", origin, at + 1));
}

}  // namespace

json parse_json(std::string_view text, const std::string& origin) {
  refuse_zero_byte(text, origin);
  TreeBuilder builder(origin);
  json::sax_parse(text, &builder);
  return builder.take();
}

namespace {

/// A value as an error names it: what is long is not repeated.
std::string quoted(const json& value) {
  constexpr std::size_t most = 40;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

}  // namespace

JsonFields::JsonFields(const json& object, std::string origin, std::string path)
    : object_(&object), origin_(std::move(origin)), path_(std::move(path)) {
  if (!object.is_object()) {
    refuse(fmt::format("{} is not an object ({}): write it in braces", path_.empty() ? "the file" : path_, origin_));
  }
}

std::string JsonFields::path_of(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }

void JsonFields::fail(const std::string& name, const std::string& problem, const std::string& suggestion) const {
  refuse(fmt::format("{} {} ({}): {}", path_of(name), problem, origin_, suggestion));
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
  if (!value.is_number()) fail(name, fmt::format("is {} and not a number", quoted(value)), "write a number");
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
  if (!value.is_string()) fail(name, fmt::format("is {} and not a text", quoted(value)), "write it in quotes");
  std::string result = value.get<std::string>();
  if (result.find('\0') != result.npos) fail(name, "holds a zero byte", "leave it out");
  return result;
}

void JsonFields::finish() const {
  for (const auto& [name, value] : object_->items()) {
    if (!asked_.contains(name)) fail(name, "is unknown", fmt::format("use one of {}", fmt::join(asked_, ", ")));
  }
}

}  // namespace distattn

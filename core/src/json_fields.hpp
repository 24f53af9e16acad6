#pragma once
/// Strict reading of JSON objects: every field is there, has its type and range, and is known.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

namespace distattn {

/// Throws Error(usage) with `origin` ("machine file x.json") and the place where the text is not JSON, or where a
/// field appears twice.
nlohmann::json parse_json(std::string_view text, const std::string& origin);

/// One object's fields. Every getter throws Error(usage) naming origin and field, as in "near.latency_s".
class JsonFields {
 public:
  /// Refuses what is not an object. `path` is empty for the outermost. Keeps a reference to `object`.
  JsonFields(const nlohmann::json& object, std::string origin, std::string path = {});

  /// A required field of any type.
  const nlohmann::json& at(const std::string& name);
  /// An optional field, or null.
  const nlohmann::json* find(const std::string& name);
  JsonFields object(const std::string& name);
  double number_above_zero(const std::string& name);
  double number_from_zero(const std::string& name);
  std::int64_t integer(const std::string& name, std::int64_t least, std::int64_t most);
  std::string text(const std::string& name);
  /// Refuses fields that no getter was asked for. `known` tells the reader what there is.
  void finish() const;

  /// "problem (origin: field): suggestion"
  [[noreturn]] void fail(const std::string& name, const std::string& problem, const std::string& suggestion) const;
  std::string path_of(const std::string& name) const;
  const std::string& origin() const { return origin_; }

 private:
  double number(const std::string& name);

  const nlohmann::json* object_;
  std::string origin_, path_;
  std::set<std::string> asked_;
};

}  // namespace distattn

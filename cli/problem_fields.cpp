#include "problem_fields.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace distattn::cli {

void add_problem(const Problem& problem, Json& json) {
  json["dtype"] = name_of(problem.dtype);
  json["wire"] = name_of(problem.wire_type());
  json["mask"] = problem.mask.name;
  json["batch"] = problem.batch;
  json["seq"] = problem.seq_q;
  json["seq_kv"] = problem.seq_kv;
  json["heads"] = problem.heads;
  json["kv_heads"] = problem.kv_heads;
  json["head_dim"] = problem.head_dim;
  json["value_dim"] = problem.value_dim;
}

bool differ_in(const std::vector<Json>& rows, const std::string& field) {
  static const std::map<std::string, std::string> follows = {
      {"seq_kv", "seq"}, {"kv_heads", "heads"}, {"value_dim", "head_dim"}};
  const auto value_of = [](const Json& row, const std::string& of) { return row.value(of, Json()); };
  const auto any = [&](auto is) { return std::any_of(rows.begin(), rows.end(), is); };
  const bool differ = any([&](const Json& row) { return value_of(row, field) != value_of(rows.front(), field); });
  const auto followed = follows.find(field);
  if (!differ || followed == follows.end()) return differ;
  return any([&](const Json& row) { return value_of(row, field) != value_of(row, followed->second); });
}

std::vector<std::string> differing_fields(const std::vector<Json>& rows) {
  Json problem = Json::object();
  add_problem({}, problem);
  std::vector<std::string> fields;
  for (const auto& [field, ignored] : problem.items()) {
    if (differ_in(rows, field)) fields.push_back(field);
  }
  return fields;
}

std::string plain_text(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace distattn::cli

#include "problem_fields.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

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

std::vector<std::string> differing_fields(const std::vector<Json>& rows) {
  Json first = Json::object();
  add_problem({}, first);
  std::vector<std::string> fields;
  for (const auto& [field, ignored] : first.items()) {
    const auto differs = [&](const Json& row) { return row.at(field) != rows.front().at(field); };
    if (std::any_of(rows.begin(), rows.end(), differs)) fields.push_back(field);
  }
  return fields;
}

std::string plain_text(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace distattn::cli

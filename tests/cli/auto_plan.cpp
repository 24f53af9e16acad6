/// What auto means to callers of the library and of the C API. usage: auto_plan CASE; a case, as one_auto.py gives it,
/// and what is printed are JSON.

#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "distattn/attention.hpp"
#include "distattn/distattn.h"

using Json = nlohmann::json;

namespace {

distattn::Problem problem_of(const Json& given) {
  distattn::Problem problem;
  problem.seq_q = problem.seq_kv = given.at("seq");
  problem.heads = given.at("heads");
  problem.kv_heads = given.at("kv_heads");
  problem.head_dim = problem.value_dim = given.at("head_dim");
  problem.mask = given.at("mask") == "causal" ? distattn::causal_mask() : distattn::full_mask();
  problem.mask.documents = given.value("documents", std::vector<std::int64_t>());
  return problem;
}

distattn::ScheduleRequest request_of(const Json& given) {
  distattn::ScheduleRequest options;
  if (given.at("backward").get<bool>()) options.passes = distattn::Passes::both;
  if (given.contains("node_size")) options.node_size = given.at("node_size").get<int>();
  if (given.contains("ahead")) options.ahead = given.at("ahead").get<int>();
  options.memory_bytes = given.value("memory", options.memory_bytes);
  options.machine = given.at("machine").get<std::string>();
  return options;
}

Json of_library(const Json& given) {
  try {
    const distattn::AttentionPlan plan(problem_of(given), given.at("ranks"), request_of(given));
    return {{"schedule", plan.name()},
            {"node_size", plan.routes().node_size},
            {"ahead", plan.routes().ahead},
            {"mode", distattn::name_of(plan.outline(distattn::Pass::forward).mode)}};
  } catch (const distattn::Error& error) {
    return {{"refused", error.what()}};
  }
}

Json of_c_api(const Json& given) {
  const std::string machine = given.at("machine");
  const std::vector<std::int64_t> documents = given.value("documents", std::vector<std::int64_t>());
  distattn_problem problem = DISTATTN_PROBLEM_INIT;
  problem.seq_q = problem.seq_kv = given.at("seq");
  problem.heads = given.at("heads");
  problem.kv_heads = given.at("kv_heads");
  problem.head_dim = given.at("head_dim");
  problem.causal = given.at("mask") == "causal" ? 1 : 0;
  problem.cu_seqlens = documents.empty() ? nullptr : documents.data();
  problem.cu_seqlens_count = documents.size();
  distattn_options options = DISTATTN_OPTIONS_INIT;
  options.backward = given.at("backward") ? 1 : 0;
  options.node_size = given.value("node_size", 0);
  options.ahead = given.value("ahead", 0);
  options.memory_bytes = given.value("memory", std::int64_t{0});
  options.machine = machine.c_str();
  char* text = nullptr;
  if (distattn_plan_json(&problem, &options, given.at("ranks"), nullptr, &text) != DISTATTN_OK)
    return {{"refused", distattn_message()}};
  Json rows = Json::parse(text);
  distattn_text_free(text);
  return rows;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) throw std::invalid_argument("usage: auto_plan CASE");
  const Json given = Json::parse(arguments[1]);
  std::puts(Json{{"library", of_library(given)}, {"c_api", of_c_api(given)}}.dump().c_str());
}

#include "core/src/papers/paper_quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/src/json_fields.hpp"
#include "distattn/baselines.hpp"
#include "distattn/error.hpp"
#include "distattn/plan.hpp"

namespace distattn {
namespace {

using nlohmann::json;

constexpr std::int64_t most = std::int64_t{1} << 40;

Mask mask_of(const std::string& name) {
  if (name == "causal") return causal_mask();
  if (name == "full") return full_mask();
  refuse(fmt::format("mask '{}' is unknown (a paper's quantity) use causal or full", name));
}

Problem read_problem(JsonFields& fields) {
  const auto integer_or = [&](const char* name, std::int64_t usual) {
    return fields.find(name) != nullptr ? fields.integer(name, 1, most) : usual;
  };
  Problem problem;
  problem.seq_q = problem.seq_kv = fields.integer("tokens", 1, most);
  problem.heads = static_cast<int>(fields.integer("heads", 1, 1 << 16));
  problem.kv_heads = static_cast<int>(integer_or("kv_heads", problem.heads));
  problem.head_dim = problem.value_dim = static_cast<int>(fields.integer("head_dim", 8, 256));
  problem.batch = integer_or("batch", 1);
  problem.dtype = problem.wire = DType::bf16;
  problem.mask = mask_of(fields.find("mask") != nullptr ? fields.text("mask") : "causal");
  check(problem);
  return problem;
}

std::vector<Pass> read_passes(JsonFields& fields) {
  const std::string name = fields.find("pass") != nullptr ? fields.text("pass") : "forward";
  if (name == "forward") return {Pass::forward};
  if (name == "backward") return {Pass::backward};
  if (name == "both") return {Pass::forward, Pass::backward};
  fields.fail("pass", fmt::format("is '{}'", name), "write forward, backward or both");
}

std::optional<Mode> read_mode(JsonFields& fields) {
  if (fields.find("mode") == nullptr) return std::nullopt;
  for (const Mode mode : {Mode::overlapped, Mode::serial, Mode::gathered}) {
    if (fields.text("mode") == name_of(mode)) return mode;
  }
  fields.fail("mode", "is unknown", "write overlapped, serial or gathered");
}

/// Whether messages follow nodes: rings that pass keys on from neighbour to neighbour, collectives that know nodes.
bool read_routed(JsonFields& fields) {
  const json* routed = fields.find("routed");
  return routed != nullptr && routed->is_boolean() && routed->get<bool>();
}

/// Bytes of tokens × hidden size in elements of 16 bits.
double layer_bytes(const Problem& problem) {
  return 2.0 * static_cast<double>(problem.batch * problem.seq_q) * problem.heads * problem.head_dim;
}

double volume(const std::string& kind, const PassPlan& plan, const Problem& problem) {
  const auto& sent = plan.report.counts.bytes_sent;
  const auto busiest = static_cast<double>(*std::max_element(sent.begin(), sent.end()));
  const double mean = std::accumulate(sent.begin(), sent.end(), 0.0) / static_cast<double>(sent.size());
  return (kind == "busiest" ? busiest : mean) / layer_bytes(problem);
}

/// Elements in units of tokens × hidden size.
double baseline_volume(JsonFields& fields, const std::string& kind, const Problem& problem, int ranks) {
  const auto all = baselines(problem, ranks);
  const std::string name = fields.text(kind);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Baseline& b) { return b.name == name; });
  if (found == all.end()) fields.fail(kind, fmt::format("is '{}'", name), "write the name of a baseline");
  double sum = 0;
  for (const Pass pass : read_passes(fields)) sum += pass == Pass::forward ? found->forward : found->backward;
  return sum;
}

}  // namespace

PaperQuantities::PaperQuantities(std::map<std::string, Machine> machines, std::string origin)
    : machines_(std::move(machines)), origin_(std::move(origin)) {}

Machine PaperQuantities::machine(const std::string& name) const {
  const auto found = machines_.find(name);
  return found != machines_.end() ? found->second : find_machine(name);
}

double PaperQuantities::compute(const json& quantity) const {
  if (quantity.is_number()) return quantity.get<double>();
  JsonFields fields(quantity, origin_);
  for (const char* kind : {"idle", "ideal_speedup", "volume", "busiest", "seconds"}) {
    if (fields.find(kind) != nullptr) return of_schedule(kind, quantity);
  }
  for (const char* kind : {"baseline", "transfer"}) {
    if (fields.find(kind) != nullptr) return of_baseline(kind, quantity);
  }
  if (const json* padding = fields.find("padding")) {
    const int heads = padding->at(0).get<int>(), ranks = padding->at(1).get<int>();
    return static_cast<double>(padded_heads(heads, ranks) - heads) / heads;
  }
  if (const json* parts = fields.find("ratio")) return compute(parts->at(0)) / compute(parts->at(1));
  if (const json* parts = fields.find("overhead")) return compute(parts->at(0)) / compute(parts->at(1)) - 1;
  if (const json* parts = fields.find("sum")) return compute(parts->at(0)) + compute(parts->at(1));
  refuse(fmt::format("no quantity in {} ({}) see paper_quantity.hpp", quantity.dump(), origin_));
}

double PaperQuantities::of_baseline(const std::string& kind, const json& quantity) const {
  JsonFields fields(quantity, origin_);
  const int ranks = static_cast<int>(fields.integer("ranks", 1, 1 << 16));
  const Problem problem = read_problem(fields);
  double value = baseline_volume(fields, kind, problem, ranks);
  if (kind == "transfer") {
    const Machine on = machine(fields.text("machine"));
    const bool several_nodes = on.node_of(ranks - 1) > 0;
    const double sharers = several_nodes && on.far_owner == LinkOwner::node ? on.ranks_per_node : 1;
    value *= layer_bytes(problem) * sharers / (several_nodes ? on.far : on.near).bytes_per_s;
  }
  fields.finish();
  return value;
}

double PaperQuantities::of_schedule(const std::string& kind, const json& quantity) const {
  JsonFields fields(quantity, origin_);
  const int ranks = static_cast<int>(fields.integer("ranks", 1, 1 << 16));
  const Problem problem = read_problem(fields);
  const std::string name = fields.text(kind);
  const auto resolved = resolve_pair(name, problem, ranks);
  if (const auto* reason = std::get_if<std::string>(&resolved)) {
    refuse(fmt::format("{} does not apply ({}; {}) correct the paper's data", name, *reason, origin_));
  }
  const auto& pair = std::get<RecipePair>(resolved);
  const std::optional<Mode> mode = read_mode(fields);
  std::optional<Machine> machine;
  Routes routes;
  if (kind == "seconds") machine = this->machine(fields.text("machine"));
  if (machine && read_routed(fields)) routes.node_size = machine->ranks_per_node;
  double sum = 0;
  for (const Pass pass : read_passes(fields)) {
    const Recipe& recipe = pass == Pass::forward ? pair.forward : pair.backward;
    const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
    const PassPlan plan =
        plan_pass(recipe, tiles, pass, mode.value_or(recipe.mode), routes, machine ? &*machine : nullptr);
    DISTATTN_EXPECT(plan.report.proved());
    if (kind == "idle") sum += plan.idle_ideal;
    if (kind == "ideal_speedup") sum += ranks * (1 - plan.idle_ideal);
    if (kind == "seconds") sum += plan.predicted_s;
    if (kind == "volume" || kind == "busiest") sum += volume(kind, plan, problem);
  }
  fields.finish();
  return sum;
}

}  // namespace distattn

#include "cli/tools/papers/paper_quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/tools/baselines.hpp"
#include "cli/tools/links.hpp"
#include "core/src/json_fields.hpp"
#include "distattn/error.hpp"
#include "distattn/plan.hpp"

namespace distattn {
namespace {

using nlohmann::json;

constexpr std::int64_t most = std::int64_t{1} << 40;

Mask mask_of(const std::string& name) {
  if (name == "causal") return causal_mask();
  if (name == "full") return full_mask();
  refuse(fmt::format("mask '{}' is unknown (a paper's quantity): use causal or full", name));
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

bool read_flag(JsonFields& fields, const char* name, bool usual) {
  const json* flag = fields.find(name);
  if (flag == nullptr) return usual;
  if (!flag->is_boolean()) fields.fail(name, "is not a boolean", "write true or false");
  return flag->get<bool>();
}

Machine read_machine(JsonFields& fields) {
  Machine machine = find_machine(fields.text("machine"));
  if (!read_flag(fields, "network", true)) {
    machine.near = machine.far = {std::numeric_limits<double>::max(), 0};
  }
  return machine;
}

/// Bytes of tokens × hidden size in elements of 16 bits.
double layer_bytes(const Problem& problem) {
  return 2.0 * static_cast<double>(problem.batch * problem.seq_q) * problem.heads * problem.head_dim;
}

double volume(const std::string& kind, const PassPlan& plan, const Problem& problem) {
  const auto& sent = kind == "far" ? plan.counts.bytes_far : plan.counts.bytes_sent;
  return (kind == "busiest" ? static_cast<double>(largest(sent)) : mean(sent)) / layer_bytes(problem);
}

/// Buffers of the fullest rank, in bytes of one rank's q, k, v and o.
double buffers(const PassPlan& plan, const Problem& problem) {
  const double own = (2 + 2.0 * problem.kv_heads / problem.heads) * layer_bytes(problem) / plan.ranks;
  return static_cast<double>(memory_side_by_side({&plan.counts})) / own;
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

PaperValue of_baseline(const std::string& kind, JsonFields& fields) {
  const int ranks = static_cast<int>(fields.integer("ranks", 1, 1 << 16));
  const Problem problem = read_problem(fields);
  double value = baseline_volume(fields, kind, problem, ranks);
  // Volumes are the papers', for many ranks: a rank keeps its own part of them.
  if (kind == "transfer") {
    value = ring_seconds(value * layer_bytes(problem) * (ranks - 1) / ranks, ranks, read_machine(fields));
  }
  return {value, PaperKind::modelled};
}

PaperValue of_schedule(const std::string& kind, JsonFields& fields) {
  const int ranks = static_cast<int>(fields.integer("ranks", 1, 1 << 16));
  const Problem problem = read_problem(fields);
  ScheduleRequest request{fields.text(kind), Passes::forward, read_mode(fields), 0};
  std::optional<Machine> machine;
  if (kind == "seconds") request.machine = machine.emplace(read_machine(fields));
  if (machine && read_flag(fields, "routed", false)) request.node_size = machine->ranks_per_node;
  if (kind == "far") request.node_size = static_cast<int>(fields.integer("node_size", 1, ranks));
  const std::vector<Pass> asked = read_passes(fields);
  if (asked.back() == Pass::backward) request.passes = Passes::both;
  const Planned planned = plan(problem, ranks, request);
  if (const auto* const why = std::get_if<WhyNot>(&planned)) fields.fail(kind, why->reason, "correct the paper's data");
  double sum = 0;
  for (const PassPlan& plan : predict(std::get<AttentionPlan>(planned), machine ? &*machine : nullptr)) {
    if (std::find(asked.begin(), asked.end(), plan.pass) == asked.end()) continue;
    if (kind == "idle") sum += plan.idle_ideal;
    if (kind == "ideal_speedup") sum += ranks * (1 - plan.idle_ideal);
    if (kind == "seconds") sum += plan.predicted_s;
    if (kind == "buffers") sum += buffers(plan, problem);
    if (kind == "volume" || kind == "busiest" || kind == "far") sum += volume(kind, plan, problem);
  }
  return {sum, machine ? PaperKind::predicted : PaperKind::counted};
}

PaperValue of_padding(const json& sizes) {
  const int heads = sizes.at(0).get<int>(), ranks = sizes.at(1).get<int>();
  return {padded_share(heads, ranks), PaperKind::modelled};
}

PaperValue compute(JsonFields& fields) {
  for (const char* kind : {"idle", "ideal_speedup", "volume", "busiest", "far", "buffers", "seconds"}) {
    if (fields.find(kind) != nullptr) return of_schedule(kind, fields);
  }
  for (const char* kind : {"baseline", "transfer"}) {
    if (fields.find(kind) != nullptr) return of_baseline(kind, fields);
  }
  if (const json* padding = fields.find("padding")) return of_padding(*padding);
  refuse(fmt::format("no quantity in {} (it has no known kind): see paper_quantity.hpp", fields.origin()));
}

}  // namespace

PaperValue paper_quantity(const std::string& quantity, const std::string& origin) {
  const json object = parse_json(quantity, origin);
  JsonFields fields(object, origin + ", " + quantity);
  const PaperValue value = compute(fields);
  fields.finish();
  return value;
}

}  // namespace distattn

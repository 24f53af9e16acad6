/// C API: the attention handle.

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "attention.hpp"
#include "distattn/plan.hpp"
#include "distattn/registry.hpp"
#include "distattn/tree.hpp"

namespace distattn::c_api {
namespace {

DType dtype_of(std::int32_t dtype, const char* name) {
  switch (dtype) {
    case DISTATTN_FP64:
      return DType::fp64;
    case DISTATTN_FP32:
      return DType::fp32;
    case DISTATTN_BF16:
      return DType::bf16;
    case DISTATTN_FP16:
      return DType::fp16;
  }
  refuse(std::string(name) + " is " + std::to_string(dtype) + " (no distattn_dtype): choose one");
}

template <class T>
std::span<const T> list_of(const T* first, std::size_t count, const char* name) {
  if (first == nullptr && count > 0) {
    refuse(std::string(name) + " is null and has " + std::to_string(count) +
           " entries (a list or none): pass its address, or a count of 0");
  }
  return {first, count};
}

bool flag_of(std::int32_t value, const char* name) {
  if (value != 0 && value != 1) {
    refuse(std::string(name) + " is " + std::to_string(value) + " (1 or 0): choose");
  }
  return value != 0;
}

/// Whether it names what a list of bands excludes is for check() to say.
Mask mask_of(const distattn_problem& given) {
  std::vector<Band> bands;
  for (const distattn_band& band : list_of(given.bands, given.bands_count, "bands")) {
    bands.push_back({band.q0, band.q1, band.k0, band.k1, band.lo, band.hi});
  }
  const auto documents = list_of(given.cu_seqlens, given.cu_seqlens_count, "cu_seqlens");
  if (given.cu_seqlens != nullptr && documents.empty()) {
    refuse("cu_seqlens has no entry (it lists 0, ..., seq_kv): pass them, or null");
  }
  if (given.bands != nullptr && bands.empty()) refuse("bands has no entry (no pair is visible): pass them, or null");
  Mask mask = given.bands != nullptr            ? band_mask(std::move(bands))
              : flag_of(given.causal, "causal") ? causal_mask()
                                                : full_mask();
  mask.left = given.window_left;
  mask.right = given.window_right;
  mask.sinks = given.sinks;
  mask.documents.assign(documents.begin(), documents.end());
  return mask;
}

}  // namespace

Problem problem_of(const distattn_problem* pointer) {
  required(pointer, "problem");
  const distattn_problem given = read(pointer, DISTATTN_PROBLEM_INIT, "distattn_problem");
  Problem problem;
  problem.batch = given.batch;
  problem.seq_q = given.seq_q;
  problem.seq_kv = given.seq_kv;
  problem.heads = given.heads;
  problem.kv_heads = given.kv_heads;
  problem.head_dim = given.head_dim;
  problem.value_dim = given.value_dim != 0 ? given.value_dim : given.head_dim;
  problem.dtype = dtype_of(given.dtype, "dtype");
  problem.wire = dtype_of(given.wire, "wire");
  problem.scores.scale = given.scale;
  problem.scores.softcap = given.softcap;
  problem.scores.sink_logits = flag_of(given.sink_logits, "sink_logits");
  problem.scores.max_logit = flag_of(given.max_logit, "max_logit");
  const auto slopes = list_of(given.alibi_slopes, given.alibi_slopes_count, "alibi_slopes");
  if (given.alibi_slopes != nullptr && slopes.empty()) {
    refuse("alibi_slopes has no entry (it lists one of each head): pass them, or null");
  }
  problem.scores.dropout = given.dropout;
  problem.shared_kv = flag_of(given.shared_kv, "shared_kv");
  problem.alibi_slopes.assign(slopes.begin(), slopes.end());
  problem.mask = mask_of(given);
  return problem;
}

namespace {

Mode mode_of(std::int32_t mode) {
  switch (mode) {
    case DISTATTN_OVERLAPPED:
      return Mode::overlapped;
    case DISTATTN_SERIAL:
      return Mode::serial;
    case DISTATTN_GATHERED:
      return Mode::gathered;
    case DISTATTN_OWN_MODE:
      break;
  }
  refuse("mode is " + std::to_string(mode) + " (no distattn_mode): choose one");
}

ScheduleRequest request_of(const distattn_options& given) {
  ScheduleRequest request;
  if (given.schedule != nullptr) request.schedule = given.schedule;
  request.passes = flag_of(given.backward, "backward") ? Passes::both : Passes::forward;
  if (given.mode != DISTATTN_OWN_MODE) request.mode = mode_of(given.mode);
  if (given.node_size != 0) request.node_size = given.node_size;
  if (given.ahead != 0) request.ahead = given.ahead;
  if (given.memory_bytes < 0) {
    refuse("memory_bytes is " + std::to_string(given.memory_bytes) + " (a size): give 0 or more");
  }
  if (given.memory_bytes > 0) request.memory_bytes = given.memory_bytes;
  if (given.machine != nullptr) request.machine = given.machine;
  if (given.balance_tokens != -1) request.balance_tokens = given.balance_tokens;
  if (given.layout != nullptr) request.layout = given.layout;
  return request;
}

Allocator allocator_of(const distattn_options& given) {
  if (given.allocate == nullptr && given.release == nullptr) return {};
  if (given.allocate == nullptr || given.release == nullptr) {
    refuse("options have one of allocate and release (memory comes and goes): set both or neither");
  }
  return [allocate = given.allocate, release = given.release, user = given.user](std::size_t bytes) {
    auto* const memory = static_cast<std::byte*>(allocate(user, bytes));
    if (memory == nullptr) return std::shared_ptr<std::byte>();
    return std::shared_ptr<std::byte>(memory, [release, user](std::byte* given_back) { release(user, given_back); });
  };
}

}  // namespace

DeviceOptions device_options_of(const distattn_options& given, const distattn_comm& comm) {
  if (given.local_ranks < 0)
    refuse("local_ranks is " + std::to_string(given.local_ranks) + " (a count): give 0 or more");
  if (given.local_rank < -1) {
    refuse("local_rank is " + std::to_string(given.local_rank) + " (a rank, or -1 for the launcher's): give one");
  }
  DeviceOptions options;
  options.threads = given.threads == 0 && given.local_ranks == 0 ? comm.cores : given.threads;
  options.local_ranks = given.local_ranks > 0 ? given.local_ranks : comm.local_ranks;
  options.allocator = allocator_of(given);
  options.local_rank = given.local_rank >= 0 ? given.local_rank : comm.local_rank;
  options.gpu.stream = given.cuda_stream;
  options.gradient_order = flag_of(given.deterministic, "deterministic") ? GradientOrder::fixed : GradientOrder::any;
  return options;
}

namespace {

/// The same for ranks that compute with a device: auto weighs its threads, and where the ranks were placed.
ScheduleRequest request_of(const distattn_options& given, const DeviceOptions& device, const distattn_comm& comm) {
  ScheduleRequest request = request_of(given);
  request.threads = device.threads;
  const bool here = given.machine == nullptr || std::string_view(given.machine) == "this";
  if (here && comm.world != nullptr && has_open_choice(request)) {
    request.machine = comm.world->placed(find_machine("this"), given.node_size);
  }
  return request;
}

/// A handle for each problem, which share a device.
std::vector<std::unique_ptr<distattn_attention>> attentions_of(std::span<const distattn_problem* const> problems,
                                                               std::span<const double> weights,
                                                               const distattn_options* options, distattn_comm* comm) {
  required(comm, "comm");
  comm->ending->check();
  const distattn_options given = read(options, DISTATTN_OPTIONS_INIT, "distattn_options");
  const DeviceOptions device_options = device_options_of(given, *comm);
  const std::shared_ptr<Device> device = make_device(given.backend != nullptr ? given.backend : "", device_options);
  std::vector<LayerKind> kinds;
  for (std::size_t i = 0; i < problems.size(); ++i)
    kinds.push_back({problem_of(problems[i]), weights.empty() ? 1.0 : weights[i]});
  const ScheduleRequest how = request_of(given, device_options, *comm);
  std::vector<std::unique_ptr<distattn_attention>> handles;
  for (Attention& made : collective(*comm->ending, [&] { return attentions(kinds, how, *device, *comm->transport); })) {
    handles.push_back(std::make_unique<distattn_attention>(distattn_attention{device, std::move(made), comm->ending}));
  }
  return handles;
}

std::string machine_named(const distattn_options& given, const char* machine) {
  const std::string options = given.machine != nullptr ? given.machine : "", asked = machine != nullptr ? machine : "";
  if (!options.empty() && !asked.empty() && options != asked) {
    refuse("machine is " + asked + ", and " + options + " in the options (one is planned for): name one");
  }
  return !asked.empty() ? asked : !options.empty() ? options : "this";
}

/// The passes that the options ask for, predicted on the machine that they name.
std::vector<PassPlan> plans_of(const Problem& problem, ScheduleRequest request, int ranks, const Machine& machine) {
  const Machine in_nodes = machine.in_nodes_of(request.node_size.value_or(0));
  request.machine = in_nodes;
  return predict(or_refuse(plan(problem, ranks, request)), &in_nodes, in_nodes.threads_of_rank(ranks));
}

bool is_query_side(std::int32_t side) {
  if (side != DISTATTN_QUERIES && side != DISTATTN_KEYS) {
    refuse("side is " + std::to_string(side) + " (no distattn_side): choose one");
  }
  return side == DISTATTN_QUERIES;
}

Pass pass_of(std::int32_t pass) {
  if (pass != DISTATTN_FORWARD && pass != DISTATTN_BACKWARD) {
    refuse("pass is " + std::to_string(pass) + " (no distattn_pass): choose one");
  }
  return pass == DISTATTN_FORWARD ? Pass::forward : Pass::backward;
}

}  // namespace
}  // namespace distattn::c_api

using namespace distattn;

extern "C" {

distattn_status distattn_attention_create(const distattn_problem* problem, const distattn_options* options,
                                          distattn_comm* comm, distattn_attention** attention) {
  return c_api::guarded([&] {
    distattn_attention*& handle = c_api::result(attention, "attention");
    handle = c_api::attentions_of({&problem, 1}, {}, options, comm).front().release();
  });
}

distattn_status distattn_attentions_create(const distattn_problem* const* problems, const double* weights, size_t count,
                                           const distattn_options* options, distattn_comm* comm,
                                           distattn_attention** attentions) {
  return c_api::guarded([&] {
    c_api::required(attentions, "attentions");
    std::fill_n(attentions, count, nullptr);
    const auto each = c_api::list_of(problems, count, "problems");
    const auto of_each = c_api::list_of(weights, weights != nullptr ? count : 0, "weights");
    auto made = c_api::attentions_of(each, of_each, options, comm);
    for (std::size_t i = 0; i < made.size(); ++i) attentions[i] = made[i].release();
  });
}

distattn_status distattn_plan_json(const distattn_problem* problem, const distattn_options* options, int32_t ranks,
                                   const char* machine, char** json) {
  return c_api::guarded([&] {
    char*& planned = c_api::result(json, "json");
    if (ranks < 1) refuse(std::to_string(ranks) + " ranks (there is one at least): plan for some");
    const distattn_options given = c_api::read(options, DISTATTN_OPTIONS_INIT, "distattn_options");
    std::string text;
    for (const PassPlan& plan : c_api::plans_of(c_api::problem_of(problem), c_api::request_of(given), ranks,
                                                find_machine(c_api::machine_named(given, machine)))) {
      text += text.empty() ? '[' : ',';
      text += to_json(plan);
    }
    planned = c_api::text_copy(text + "]");
  });
}

distattn_status distattn_plan_layout(const distattn_problem* problem, const distattn_options* options, int32_t ranks,
                                     const char* machine, char** layout) {
  return c_api::guarded([&] {
    char*& planned = c_api::result(layout, "layout");
    const distattn_options given = c_api::read(options, DISTATTN_OPTIONS_INIT, "distattn_options");
    ScheduleRequest request = c_api::request_of(given);
    if (given.schedule == nullptr) request.schedule = "placed";
    request.machine = find_machine(c_api::machine_named(given, machine)).in_nodes_of(given.node_size);
    const AttentionPlan made = or_refuse(plan(c_api::problem_of(problem), ranks, request));
    if (made.layout().empty()) refuse("schedule " + made.name() + " has a layout of its own: choose placed");
    planned = c_api::text_copy(made.layout());
  });
}

distattn_status distattn_planned_positions(const distattn_problem* problem, const distattn_options* options,
                                           int32_t ranks, int32_t rank, int32_t side, int64_t* positions,
                                           int64_t* count) {
  return c_api::guarded([&] {
    c_api::required(count, "count");
    if (rank < 0 || rank >= ranks) {
      refuse("rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " (ranks count from 0): choose one");
    }
    const ScheduleRequest request = c_api::request_of(c_api::read(options, DISTATTN_OPTIONS_INIT, "distattn_options"));
    const AttentionPlan planned = or_refuse(plan(c_api::problem_of(problem), ranks, request));
    const Sharding& sharding = planned.outline(Pass::forward).sharding;
    const auto all = distattn::positions(c_api::is_query_side(side) ? sharding.queries : sharding.keys, rank);
    *count = std::ssize(all);
    if (positions != nullptr) std::copy(all.begin(), all.end(), positions);
  });
}

distattn_status distattn_tree_mask(const distattn_tree_node* nodes, size_t count, distattn_band* bands,
                                   size_t* bands_count, int64_t* positions) {
  return c_api::guarded([&] {
    c_api::required(bands_count, "bands_count");
    std::vector<TreeNode> tree;
    for (const distattn_tree_node& node : c_api::list_of(nodes, count, "nodes")) {
      tree.push_back({node.length, node.parent});
    }
    const Mask mask = tree_mask(tree);
    *bands_count = mask.given.size();
    for (std::size_t i = 0; bands != nullptr && i < mask.given.size(); ++i) {
      const Band& band = mask.given[i];
      bands[i] = {band.q0, band.q1, band.k0, band.k1, band.lo, band.hi};
    }
    if (positions == nullptr) return;
    const std::vector<std::int64_t> all = tree_positions(tree);
    std::copy(all.begin(), all.end(), positions);
  });
}

void distattn_attention_free(distattn_attention* attention) { delete attention; }

int64_t distattn_attention_tokens(const distattn_attention* attention, int32_t side) {
  std::int64_t tokens = -1;
  c_api::guarded([&] {
    const Attention& asked = c_api::attention_of(attention);
    tokens = c_api::is_query_side(side) ? asked.query_tokens() : asked.key_tokens();
  });
  return tokens;
}

distattn_status distattn_attention_positions(const distattn_attention* attention, int32_t side, int64_t* positions) {
  return c_api::guarded([&] {
    c_api::required(positions, "positions");
    const Attention& asked = c_api::attention_of(attention);
    const auto all = c_api::is_query_side(side) ? asked.query_positions() : asked.key_positions();
    std::copy(all.begin(), all.end(), positions);
  });
}

distattn_status distattn_schedule_json(const distattn_attention* attention, int32_t pass, char** json) {
  return c_api::guarded([&] {
    char*& text = c_api::result(json, "json");
    const Pass which = c_api::pass_of(pass);
    text = c_api::text_copy(to_json(c_api::plan_of(c_api::attention_of(attention), which).schedule(which)));
  });
}

}  // extern "C"

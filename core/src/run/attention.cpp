#include "distattn/attention.hpp"

#include <optional>
#include <utility>

#include <fmt/core.h>

#include "core/src/run/agreement.hpp"
#include "core/src/run/pass_queue.hpp"
#include "core/src/run/process_mark.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// A plan that others may share, where all ranks have the same.
std::shared_ptr<const AttentionPlan> agreed(std::shared_ptr<const AttentionPlan> plan, Device& device,
                                            Transport& transport) {
  if (plan == nullptr) refuse("no plan is given (the pointer is null): make one with plan()");
  await_passes(device, transport);  // the agreement uses the transport too
  if (plan->ranks() != transport.size()) {
    refuse(
        fmt::format("a plan for {} ranks cannot run on {} (shards and programs differ): plan for the ranks there are",
                    plan->ranks(), transport.size()));
  }
  Agreement agreement(device, transport);
  if (!agreement.possible()) return plan;
  if (transport.rank() == 0)
    agreement.announce({plan->fingerprint(), plan->name(), plan->routes()});
  else
    agreement.compare(agreement.hear(), plan->fingerprint());
  return plan;
}

using SharedPlans = std::vector<std::shared_ptr<const AttentionPlan>>;

SharedPlans plans_of(const std::vector<LayerKind>& kinds, int ranks, const ScheduleRequest& request) {
  SharedPlans plans;
  for (AttentionPlan& made : or_refuse(plan(kinds, ranks, request)))
    plans.push_back(std::make_shared<const AttentionPlan>(std::move(made)));
  return plans;
}

/// What rank 0 chose, on another rank.
std::shared_ptr<const AttentionPlan> plan_heard(const Problem& problem, ScheduleRequest request,
                                                const Agreement::Decision& first, int ranks) {
  request.schedule = first.schedule;
  request.node_size = first.routes.node_size;
  request.ahead = first.routes.ahead;
  request.layout = first.layout;
  request.machine = "";
  request.memory_bytes = ScheduleRequest().memory_bytes;  // rank 0's counted
  return std::make_shared<const AttentionPlan>(problem, ranks, request);
}

/// What auto stands for depends on the machine, its calibration and its cores: rank 0 chooses for all ranks.
SharedPlans plans_chosen_by_first(const std::vector<LayerKind>& kinds, const ScheduleRequest& request, Device& device,
                                  Transport& transport) {
  Agreement agreement(device, transport);
  if (!agreement.possible()) return plans_of(kinds, transport.size(), request);
  SharedPlans plans;
  if (transport.rank() != 0) {
    std::vector<Agreement::Decision> decisions;
    while (decisions.size() < kinds.size()) decisions.push_back(agreement.hear());
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      plans.push_back(plan_heard(kinds[k].problem, request, decisions[k], transport.size()));
      agreement.compare(decisions[k], plans.back()->fingerprint());
    }
    return plans;
  }
  try {
    plans = plans_of(kinds, transport.size(), request);
  } catch (...) {
    agreement.announce(as_error(std::current_exception()));
    throw;
  }
  for (const auto& plan : plans)
    agreement.announce({plan->fingerprint(), plan->name(), plan->routes(), plan->layout()});
  return plans;
}

std::shared_ptr<const AttentionPlan> agreed_plan(const Problem& problem, const ScheduleRequest& request, Device& device,
                                                 Transport& transport) {
  await_passes(device, transport);
  if (has_open_choice(request)) return plans_chosen_by_first({{problem}}, request, device, transport).front();
  return agreed(std::make_shared<const AttentionPlan>(problem, transport.size(), request), device, transport);
}

/// Ends the other ranks, which would wait for this one for good. What is refused is refused by every rank, and leaves
/// the transport whole.
void end_others(const Error& error, Transport& transport) {
  if (error.kind() != ErrorKind::usage && transport.size() > 1) transport.abort(error);
}

}  // namespace

struct Attention::State {
  /// This rank's part of one pass.
  struct Running {
    Running(const AttentionPlan& plan, Pass pass, Device& device, Transport& transport)
        : program(plan.program(pass, transport.rank())),
          executor(plan.outline(pass), program, transport.rank(), device, transport) {}
    RankProgram program;
    Executor executor;
  };

  State(std::shared_ptr<const AttentionPlan> shared_plan, Device& device, Transport& transport)
      : plan(std::move(shared_plan)), rank(transport.rank()), queue(device, transport) {
    try {
      for (const Pass pass : {Pass::forward, Pass::backward}) {
        if (plan->has(pass)) passes[pass].emplace(*plan, pass, device, transport);
      }
    } catch (...) {
      end_others(as_error(std::current_exception()), transport);
      throw;
    }
  }

  Running& at(Pass pass) {
    if (!passes[pass]) {
      refuse("the backward pass was not prepared (ScheduleRequest::passes is forward): construct with both");
    }
    return *passes[pass];
  }

  Executor& executor(Pass pass) {
    process.check();
    return at(pass).executor;
  }

  ProcessMark process;
  std::shared_ptr<const AttentionPlan> plan;
  Rank rank;
  PerPass<std::optional<Running>> passes;
  PassQueue queue;  // ends before what it runs
};

Attention::Attention(const Problem& problem, const ScheduleRequest& request, Device& device, Transport& transport)
    : state_(std::make_unique<State>(agreed_plan(problem, request, device, transport), device, transport)) {}
Attention::Attention(std::shared_ptr<const AttentionPlan> plan, Device& device, Transport& transport)
    : state_(std::make_unique<State>(agreed(std::move(plan), device, transport), device, transport)) {}
Attention::~Attention() = default;
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;

const AttentionPlan& Attention::plan() const { return *state_->plan; }
const Outline& Attention::outline(Pass pass) const { return state_->plan->outline(pass); }
const RankProgram& Attention::program(Pass pass) const { return state_->at(pass).program; }
const Counts& Attention::counts(Pass pass) const { return state_->plan->counts(pass); }

std::int64_t Attention::query_tokens() const {
  return owned_tokens(outline(Pass::forward).sharding.queries, state_->rank);
}
std::int64_t Attention::key_tokens() const { return owned_tokens(outline(Pass::forward).sharding.keys, state_->rank); }
std::vector<std::int64_t> Attention::query_positions() const {
  return positions(outline(Pass::forward).sharding.queries, state_->rank);
}
std::vector<std::int64_t> Attention::key_positions() const {
  return positions(outline(Pass::forward).sharding.keys, state_->rank);
}

const Timeline& Attention::forward(const Bindings& bindings) {
  return state_->queue.run(state_->executor(Pass::forward), bindings);
}
const Timeline& Attention::backward(const Bindings& bindings) {
  return state_->queue.run(state_->executor(Pass::backward), bindings);
}
Event Attention::forward(const Bindings& bindings, const Event& after) {
  return state_->queue.queue(state_->executor(Pass::forward), bindings, after);
}
Event Attention::backward(const Bindings& bindings, const Event& after) {
  return state_->queue.queue(state_->executor(Pass::backward), bindings, after);
}
void Attention::check() { state_->queue.check(); }
void Attention::wait() { state_->queue.wait(); }
const Timeline& Attention::timeline(Pass pass) {
  Executor& executor = state_->at(pass).executor;
  state_->queue.wait();
  return executor.timeline();
}

std::vector<Attention> attentions(const std::vector<LayerKind>& kinds, const ScheduleRequest& request, Device& device,
                                  Transport& transport) {
  await_passes(device, transport);
  std::vector<Attention> handles;
  for (auto& plan : has_open_choice(request) ? plans_chosen_by_first(kinds, request, device, transport)
                                             : plans_of(kinds, transport.size(), request))
    handles.emplace_back(std::move(plan), device, transport);  // which makes sure that all ranks have the same
  return handles;
}

}  // namespace distattn

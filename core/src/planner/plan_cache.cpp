#include "distattn/plan_cache.hpp"

#include <algorithm>
#include <future>
#include <list>
#include <mutex>
#include <system_error>
#include <utility>

#include "distattn/thread.hpp"

namespace distattn {

using SharedPlan = std::shared_ptr<const AttentionPlan>;

struct PlanCache::State {
  struct Asked {
    Problem problem;
    int ranks;
    ScheduleRequest request;
    friend bool operator==(const Asked&, const Asked&) = default;

    SharedPlan made() const { return std::make_shared<const AttentionPlan>(problem, ranks, request); }
  };

  struct Kept {
    Asked asked;
    std::shared_future<SharedPlan> plan;
  };

  explicit State(std::size_t most) : most_plans(std::max<std::size_t>(1, most)) {}

  /// The plan, which is put first. Under the lock.
  std::list<Kept>::iterator find(const Asked& asked) {
    const auto found = std::find_if(plans.begin(), plans.end(), [&](const Kept& kept) { return kept.asked == asked; });
    if (found != plans.end()) plans.splice(plans.begin(), plans, found);
    return found;
  }
  /// Under the lock. Futures of a thread wait for it when they are destroyed, which `dropped` puts off until after it.
  void add(Kept kept, std::list<Kept>& dropped) {
    plans.push_front(std::move(kept));
    while (plans.size() > most_plans) dropped.splice(dropped.end(), plans, std::prev(plans.end()));
  }
  void forget(const Asked& asked) {
    const std::scoped_lock lock(guard);
    std::erase_if(plans, [&](const Kept& kept) { return kept.asked == asked; });
  }

  std::size_t most_plans;
  mutable std::mutex guard;
  std::list<Kept> plans;  // the last that was asked for first
};

PlanCache::PlanCache(std::size_t most_plans) : state_(std::make_unique<State>(most_plans)) {}
PlanCache::~PlanCache() = default;

SharedPlan PlanCache::get(const Problem& problem, int ranks, const ScheduleRequest& request) {
  State::Asked asked{problem, ranks, request};
  std::list<State::Kept> dropped;
  std::shared_future<SharedPlan> plan;
  std::promise<SharedPlan> mine;
  bool is_new = false;
  {
    const std::scoped_lock lock(state_->guard);
    const auto found = state_->find(asked);
    is_new = found == state_->plans.end();
    plan = is_new ? mine.get_future().share() : found->plan;
    if (is_new) state_->add({asked, plan}, dropped);
  }
  if (is_new) {
    try {
      mine.set_value(asked.made());
    } catch (...) {
      mine.set_exception(std::current_exception());
    }
  }
  try {
    return plan.get();
  } catch (...) {
    state_->forget(asked);
    throw;
  }
}

void PlanCache::begin(const Problem& problem, int ranks, const ScheduleRequest& request) {
  State::Asked asked{problem, ranks, request};
  std::list<State::Kept> dropped;
  const std::scoped_lock lock(state_->guard);
  if (state_->find(asked) != state_->plans.end()) return;
  try {
    state_->add({asked, std::async(std::launch::async, [asked] { return asked.made(); }).share()}, dropped);
  } catch (const std::system_error& error) {
    throw no_thread("a plan", "be made ahead of its use", error);
  }
}

std::size_t PlanCache::size() const {
  const std::scoped_lock lock(state_->guard);
  return state_->plans.size();
}

}  // namespace distattn

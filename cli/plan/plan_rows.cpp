#include "cli/plan/plan_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "cli/run/sink_logits.hpp"
#include "cli/terminal/console.hpp"
#include "core/src/format.hpp"
#include "distattn/error.hpp"
#include "distattn/plan.hpp"

namespace distattn::cli {
namespace {

Passes passes_of(const PlanRequest& request) { return request.backward ? Passes::both : Passes::forward; }

/// Plans one problem on some ranks.
class Planner {
 public:
  Planner(const PlanRequest& request, const ScheduleOptions& schedule, const Machine& machine, PlanRows& rows)
      : request_(request), schedule_(schedule), machine_(machine), rows_(rows) {}

  /// The problem with this number among all, or several masks of it on one layout.
  void plan(const std::vector<LayerKind>& kinds, std::size_t number, int ranks) {
    kinds_ = &kinds;
    problem_ = std::make_shared<const Problem>(kinds.front().problem);
    number_ = number;
    ranks_ = ranks;
    const std::vector<bool> variants = route_variants();
    for (const bool straight : variants) {
      for (const std::string& name : names_of(schedule_, *problem_, ranks_)) {
        ScheduleRequest request = request_of(schedule_, name, passes_of(request_), machine_);
        if (straight) request.node_size = 0;
        if (straight) request.ahead.reset();
        // Otherwise a placement goes straight in both.
        if (variants.size() > 1 && !straight && !request.node_size) request.node_size = machine_.ranks_per_node;
        if (kinds.size() > 1) {
          plan_together(request);
        } else {
          plan(std::move(request));
        }
      }
    }
  }

 private:
  /// Whether messages go straight.
  std::vector<bool> route_variants() const {
    const ScheduleRequest asked = request_of(schedule_, "", Passes::forward, machine_);
    const Routes routed = or_refuse(with_options_named(routes_of(asked, machine_, ranks_)));
    if (routed.node_size == 0 || request_.routes == RouteKinds::routed) return {false};
    return request_.routes == RouteKinds::straight ? std::vector{true} : std::vector{true, false};
  }

  /// All passes of one schedule, or why there is no plan. If keys and values may be sent as latents, both ways.
  void plan(ScheduleRequest request) {
    const std::size_t first = rows_.rows.size();
    if (!plan_one(request, nullptr) || !request_.latents) return;
    const std::size_t second = rows_.rows.size();
    if (plan_one(std::move(request), &*request_.latents)) choose(first, second);
  }

  /// Returns whether there is a plan.
  bool plan_one(ScheduleRequest request, const Latents* latents) {
    const bool automatic = request.schedule == "auto", made_here = has_open_choice(request);
    const auto refused = [&](WhyNot why) {
      skip(rows_.skipped, std::move(why));
      return false;
    };
    if (made_here) {
      auto ranked = rank_schedules(*problem_, ranks_, machine_, request, latents);
      if (auto* const why = std::get_if<WhyNot>(&ranked)) return refused(std::move(*why));
      auto& ranking = std::get<std::vector<Choice>>(ranked);
      request = with_choice(std::move(request), ranking.front());
      if (automatic) rows_.choices.push_back({*problem_, ranks_, std::move(ranking), latents != nullptr});
    }
    auto planned = distattn::plan(*problem_, ranks_, request);
    if (auto* const why = std::get_if<WhyNot>(&planned)) return refused(std::move(*why));
    const AttentionPlan& plan = std::get<AttentionPlan>(planned);
    std::vector<PassPlan> passes = predict(plan, &machine_, machine_.threads_of_rank(ranks_), latents);
    std::optional<std::string> bound;
    if (made_here && !request.layout.empty()) {
      bound = what_binds(*problem_, ranks_, machine_, request);
      if (latents == nullptr) add_note(*bound, passes);
    }
    for (PassPlan& pass : passes) {
      const auto sent = sent_as(pass, latents != nullptr);
      rows_.rows.push_back({.plan = std::move(pass),
                            .problem = problem_,
                            .number = number_,
                            .automatic = automatic,
                            .memory_bytes = plan.memory_bytes(),
                            .layout = request.layout,
                            .bound = bound,
                            .sent = sent});
    }
    return true;
  }

  std::optional<SentAs> sent_as(const PassPlan& pass, bool latents) const {
    if (!request_.latents) return std::nullopt;
    const int threads = machine_.cores > 0 ? machine_.threads_of_rank(ranks_) : 1;
    return SentAs{latents, false, pass.expansion_flops,
                  pass.expansion_flops / machine_.product_flops_per_s(problem_->dtype) / threads};
  }

  /// Of rows from `first` on and of as many from `second` on, which send latents: the faster one of each pass if both
  /// are of one schedule, and of all passes otherwise, which are to have one layout.
  void choose(std::size_t first, std::size_t second) {
    const auto row = [&](std::size_t begin, std::size_t i) -> PlanRow& { return rows_.rows[begin + i]; };
    const auto seconds = [&](std::size_t begin) {
      double sum = 0;
      for (std::size_t i = 0; i < second - first; ++i) sum += row(begin, i).seconds();
      return sum;
    };
    const bool is_one =
        row(first, 0).plan.schedule == row(second, 0).plan.schedule && row(first, 0).layout == row(second, 0).layout;
    const bool all = seconds(second) < seconds(first);
    for (std::size_t i = 0; i < second - first; ++i) {
      const bool latents = is_one ? row(second, i).seconds() < row(first, i).seconds() : all;
      row(latents ? second : first, i).sent->chosen = true;
    }
  }

  /// All passes of all masks, or why there is no plan.
  void plan_together(const ScheduleRequest& request) {
    auto planned = distattn::plan(*kinds_, ranks_, request);
    if (auto* const why = std::get_if<WhyNot>(&planned)) return skip(rows_.skipped, std::move(*why));
    const auto& plans = std::get<std::vector<AttentionPlan>>(planned);
    const std::size_t first = rows_.rows.size();
    add_together(request, plans, nullptr);
    const std::size_t second = rows_.rows.size();
    if (!request_.latents) return;
    add_together(request, plans, &*request_.latents);
    choose(first, second);
  }

  void add_together(const ScheduleRequest& request, const std::vector<AttentionPlan>& plans, const Latents* latents) {
    const std::size_t first = rows_.rows.size();
    SharedLayout shared{request.schedule, ranks_, {}};
    PerPass<double> all_layers_s{};
    std::int64_t memory_bytes = 0;
    for (std::size_t k = 0; k < kinds_->size(); ++k) {
      const auto& [problem, layers] = (*kinds_)[k];
      const AttentionPlan& plan = plans[k];
      const auto of_rows = std::make_shared<const Problem>(problem);
      memory_bytes += plan.memory_bytes();
      shared.masks.push_back({problem.mask.name, layers, plan.name(), 0});
      for (PassPlan& pass : predict(plan, &machine_, machine_.threads_of_rank(ranks_), latents)) {
        all_layers_s[pass.pass] += layers * pass.predicted_s;
        shared.masks.back().predicted_s += pass.predicted_s;
        const auto sent = sent_as(pass, latents != nullptr);
        rows_.rows.push_back({.plan = std::move(pass),
                              .problem = of_rows,
                              .number = number_,
                              .automatic = request.schedule == "auto",
                              .layout = plan.layout(),
                              .together = first + 1,
                              .kind = k,
                              .layers = layers,
                              .sent = sent});
      }
    }
    for (std::size_t i = first; i < rows_.rows.size(); ++i) {
      rows_.rows[i].memory_bytes = memory_bytes;
      rows_.rows[i].all_layers_s = all_layers_s[rows_.rows[i].plan.pass];
    }
    if (has_open_choice(request) && latents == nullptr) rows_.shared.push_back(std::move(shared));
  }

  void add_note(const std::string& bound, const std::vector<PassPlan>& passes) {
    PlacementNote placed{*problem_, ranks_, bound, 0, 0};
    for (const PassPlan& pass : passes) {
      placed.predicted_s += pass.predicted_s;
      placed.lower_bound_s += pass.lower_bound_s;
    }
    rows_.placements.push_back(std::move(placed));
  }

  const PlanRequest& request_;
  const ScheduleOptions& schedule_;
  const Machine& machine_;
  PlanRows& rows_;
  const std::vector<LayerKind>* kinds_ = nullptr;
  std::shared_ptr<const Problem> problem_;  // the first kind's
  std::size_t number_ = 0;
  int ranks_ = 1;
};

bool better(const PlanRow& a, const PlanRow& b) {
  const auto key = [](const PlanRow& row) {
    const Counts& counts = row.plan.counts;
    return std::tuple(row.plan.seq_q, row.number, row.plan.ranks, row.plan.pass, row.seconds(), row.together, row.kind,
                      largest(counts.bytes_sent), mean(counts.bytes_sent), row.plan.schedule, row.plan.routes.node_size,
                      row.sent && row.sent->latents);
  };
  return key(a) < key(b);
}

/// The best row of each way to send keys and values, of each problem, number of ranks and pass.
std::vector<LatentChoice> latent_choices(const std::vector<PlanRow>& rows) {
  std::map<std::tuple<std::size_t, int, Pass, std::size_t>, std::array<std::optional<std::size_t>, 2>> best;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [plan, sent, kind] = std::tie(rows[i].plan, rows[i].sent, rows[i].kind);
    if (!sent) return {};
    auto& of = best[{rows[i].number, plan.ranks, plan.pass, kind}][sent->latents ? 1 : 0];
    if (!of) of = i;
  }
  std::vector<LatentChoice> choices;
  for (const auto& [key, of] : best) {
    if (of[0] && of[1]) choices.push_back({*of[0], *of[1]});
  }
  return choices;
}

/// Straight routes know no nodes: only a machine can have them.
void check_straight(const ScheduleOptions& options, const Machine& machine) {
  if (options.ahead) refuse(fmt::format("--ahead {} (straight routes have one lane): leave it out", *options.ahead));
  if (options.node_size && machine.nodes == 1) {
    refuse(
        fmt::format("--node-size {} (straight routes know no nodes, and machine {} is one): leave it out, or name "
                    "another --machine",
                    *options.node_size, machine.name));
  }
}

}  // namespace

PlanRows plan_rows(const PlanRequest& request, const Machine& machine) {
  PlanRows rows;
  if (request.routes == RouteKinds::straight) check_straight(request.schedule, machine);
  auto [problems, none] = problems_of(combinations(request.problem));
  rows.no_problems = std::move(none);
  for (const Problem& problem : problems) {
    if (request.latents) check(*request.latents, problem);
    check_sink_logits(request.problem.common.sink_logits, problem);
  }
  for (const ScheduleOptions& schedule : each_mode(request.schedule)) {
    Planner planner(request, schedule, machine, rows);
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const std::vector<LayerKind> kinds = kinds_of(problems[i], request.problem);
      for (const std::int64_t ranks : schedule.ranks) planner.plan(kinds, i, static_cast<int>(ranks));
    }
  }
  if (rows.rows.empty()) {
    refuse_all("no schedule is left to plan", rows.skipped, "choose another schedule, other ranks or more memory");
  }
  std::stable_sort(rows.rows.begin(), rows.rows.end(), better);
  rows.latents = latent_choices(rows.rows);
  return rows;
}

void refuse_all(const std::string& problem, const std::vector<WhyNot>& skipped, const std::string& suggestion) {
  // A search that found nothing says itself what to do.
  if (skipped.size() == 1 && skipped.front().kind == WhyNot::Kind::none_left) refuse(skipped.front().message);
  std::vector<std::string> reasons;
  for (const WhyNot& each : skipped) reasons.push_back(skipped_text(each));
  refuse(fmt::format("{} ({}): {}", problem, fmt::join(reasons, "; "), suggestion));
}

void skip(std::vector<WhyNot>& skipped, WhyNot why) {
  why = with_options_named(std::move(why));
  if (!why.concerns_one_schedule() || why.error != ErrorKind::usage) throw Error(why.error, why.message);
  skipped.push_back(std::move(why));
}

void note_skipped(const std::vector<WhyNot>& skipped) {
  for (const WhyNot& each : skipped) note("skipped " + skipped_text(each));
}

void note_memory(const std::vector<std::int64_t>& needed, const Machine& machine) {
  if (machine.memory_bytes <= 0 || machine.cores > 0) return;
  const auto too_large =
      std::count_if(needed.begin(), needed.end(), [&](std::int64_t bytes) { return bytes > machine.memory_bytes; });
  if (too_large == 0) return;
  note(fmt::format("{} of {} rows need more than the {} that a rank has on {}; --memory leaves such rows out",
                   too_large, needed.size(), format_bytes(static_cast<double>(machine.memory_bytes)), machine.name));
}

}  // namespace distattn::cli

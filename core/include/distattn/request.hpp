#pragma once
/// A request to the planner, and the reason why it has no plan. Both are data: ranks send them to each other, and the
/// caller decides whether a schedule without a plan is an error or is left out of a list.

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "distattn/error.hpp"
#include "distattn/lower.hpp"
#include "distattn/machine.hpp"
#include "distattn/problem.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Which passes are planned.
enum class Passes : std::uint8_t { forward, both };

/// What "placed" gives ranks equal shares of: tokens, or tokens by their speed, so that slow ranks own fewer.
enum class Balance : std::uint8_t { tokens, work };

/// The schedule to plan and its limits. The library, the C API and the command all fill this struct.
struct ScheduleRequest {
  /// "F" or "F/B" (table.hpp), or "auto": the schedule that rank_schedules predicts to be fastest on `machine`. With an
  /// Attention, rank 0 chooses for all ranks; with plan() alone, the caller chooses for itself.
  std::string schedule = "auto";
  Passes passes = Passes::forward;
  std::optional<Mode> mode{};      ///< absent: each schedule's own mode
  std::optional<int> node_size{};  ///< as in Routes, 0: one node; absent: the machine's, if it has several nodes
  std::optional<int> ahead{};      ///< as in Routes; absent: searched by auto, 0 for a named schedule
  /// Limit in bytes for the buffers of a rank, all passes together. auto considers only schedules that fit; a named
  /// schedule that does not fit has no plan.
  std::int64_t memory_bytes = std::numeric_limits<std::int64_t>::max();
  int threads = 0;  ///< threads of a rank, for the predictions of auto; 0: its share of the machine's cores
  /// Schedule "placed": tokens that a rank may own beyond its share, as a part of that share; at least 0.
  double balance_tokens = 0.005;
  Balance balance = Balance::tokens;  ///< schedule "placed": what shares are equal in
  /// Who owns which tokens: "striped:64" or another name (layout_named), for "auto" and every schedule on a mesh; or
  /// segments, as placement_from_json reads them, for "placed" and "auto". Empty: the schedule's own, or made for the
  /// machine.
  std::string layout{};
  /// A machine, or the name or file of one (find_machine). A file is read only when it is needed, and on rank 0 alone
  /// if rank 0 chooses for all. Empty: this machine for auto and placed, and a single node for another schedule.
  /// World::placed() describes the machine on which a launcher started the ranks.
  std::variant<std::string, Machine> machine{};

  friend bool operator==(const ScheduleRequest&, const ScheduleRequest&) = default;
};

/// Calls visit(name, field) for each field except the machine, which a decided() request no longer needs. Messages
/// between ranks are made from these fields, so that a new field is listed only here.
template <class Request, class Visit>
requires std::same_as<std::remove_const_t<Request>, ScheduleRequest>
void fields_of(Request& request, Visit&& visit) {
  visit("schedule", request.schedule);
  visit("passes", request.passes);
  visit("mode", request.mode);
  visit("node_size", request.node_size);
  visit("ahead", request.ahead);
  visit("memory_bytes", request.memory_bytes);
  visit("threads", request.threads);
  visit("balance_tokens", request.balance_tokens);
  visit("balance", request.balance);
  visit("layout", request.layout);
}

/// Whether the planner has something to choose for a machine: the schedule, or the layout of "placed".
bool has_open_choice(const ScheduleRequest& request);

/// The reason why there is no plan.
struct WhyNot {
  enum class Kind : std::uint8_t {
    does_not_apply,     ///< the schedule cannot compute this problem on these ranks
    too_many_messages,  ///< this process has too little memory to plan the messages
    too_large,          ///< a rank's buffers need more than memory_bytes
    none_left,          ///< auto: no schedule applies, fits the memory, and can be predicted
    no_nodes,           ///< `ahead` was requested, but no message travels between nodes
    not_proved,         ///< the schedule's programs are wrong
  };
  Kind kind = Kind::does_not_apply;
  std::string schedule;  ///< the schedule that was requested
  int ranks = 1;
  std::string reason;                  ///< a phrase that follows the schedule's name in a list
  std::string message;                 ///< the whole error text: "problem (why): suggestion"
  ErrorKind error = ErrorKind::usage;  ///< kind of the Error that or_refuse() throws

  /// Whether only this schedule has no plan, so that a list of schedules can continue with the others.
  bool concerns_one_schedule() const { return kind != Kind::no_nodes && kind != Kind::not_proved; }
};

template <class Why, class Visit>
requires std::same_as<std::remove_const_t<Why>, WhyNot>
void fields_of(Why& why, Visit&& visit) {
  visit("kind", why.kind);
  visit("schedule", why.schedule);
  visit("ranks", why.ranks);
  visit("reason", why.reason);
  visit("message", why.message);
  visit("error", why.error);
}

/// Returns the result, or throws Error with the message of WhyNot.
template <class Made>
Made or_refuse(std::variant<Made, WhyNot> made) {
  if (const auto* const why = std::get_if<WhyNot>(&made)) throw Error(why->error, why->message);
  return std::get<Made>(std::move(made));
}

/// The routes that a request asks for on a machine. Messages are routed between the machine's nodes unless `node_size`
/// says otherwise, and go straight to their receivers if one node has all ranks.
std::variant<Routes, WhyNot> routes_of(const ScheduleRequest& request, const Machine& machine, int ranks);

/// Decides what the request leaves open: the schedule's name, node_size and ahead. The result holds no machine. The
/// library, the C API and the command all resolve `auto` with this function. Throws Error(usage) for an invalid
/// problem, and whatever find_machine throws.
std::variant<ScheduleRequest, WhyNot> decided(const Problem& problem, int ranks, ScheduleRequest request);

}  // namespace distattn
#pragma GCC visibility pop

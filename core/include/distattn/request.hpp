#pragma once
/// What is asked of the planner, and why it may have no plan. Both are data: ranks tell them to each other, and whoever
/// asks decides whether a schedule without a plan ends a command or is left out of a list.

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

/// Which schedule is to be planned, and within which limits. The library, the C API and the command all fill this
/// struct.
struct ScheduleRequest {
  /// "F" or "F/B" (table.hpp), or what rank_schedules finds best on `machine`, as far as that was calibrated. An
  /// Attention has rank 0 choose for all; a plan by itself is for whoever makes it.
  std::string schedule = "auto";
  Passes passes = Passes::forward;
  std::optional<Mode> mode{};      ///< nothing: each schedule's own
  std::optional<int> node_size{};  ///< as in Routes, 0: straight; nothing: the machine's, if it has several nodes
  std::optional<int> ahead{};      ///< as in Routes; nothing: auto searches it, for a named schedule 0
  /// Of a rank's buffers, all passes together: auto chooses what fits, any other schedule has no plan beyond it.
  std::int64_t memory_bytes = std::numeric_limits<std::int64_t>::max();
  int threads = 0;  ///< that a rank computes with, for auto to weigh; 0: its share of the machine's cores
  /// A machine, or its name or file (find_machine), which is read when it is needed: where rank 0 chooses for all, on
  /// rank 0 alone. Empty: this machine, and for a named schedule one node. World::placed() describes one that ranks of
  /// a launcher share.
  std::variant<std::string, Machine> machine{};
};

/// Calls visit(name, field) for each field but the machine, which a decided() request no longer needs. What ranks tell
/// each other is made from these, so a new field is listed here and nowhere else.
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
}

/// Why there is no plan.
struct WhyNot {
  enum class Kind : std::uint8_t {
    does_not_apply,     ///< the schedule is not for this problem on these ranks
    too_many_messages,  ///< this process has no memory to plan them
    too_large,          ///< a rank's buffers need more than memory_bytes
    none_left,          ///< auto: no schedule applies, fits the memory, or can be predicted
    no_nodes,           ///< `ahead` is asked for, and nothing travels between nodes
    not_proved,         ///< the schedule's programs are wrong
  };
  Kind kind = Kind::does_not_apply;
  std::string schedule;  ///< that was asked for
  int ranks = 1;
  std::string reason;                  ///< as it follows the schedule's name in a list
  std::string message;                 ///< "problem (why): suggestion", by itself
  ErrorKind error = ErrorKind::usage;  ///< as which it is thrown

  /// Whether a list of schedules goes on without this one, as others may do.
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

/// Returns what was made, or throws the message.
template <class Made>
Made or_refuse(std::variant<Made, WhyNot> made) {
  if (const auto* const why = std::get_if<WhyNot>(&made)) throw Error(why->error, why->message);
  return std::get<Made>(std::move(made));
}

/// The routes that a request asks for on a machine: between its nodes unless `node_size` says otherwise, straight
/// if one node has all ranks.
std::variant<Routes, WhyNot> routes_of(const ScheduleRequest& request, const Machine& machine, int ranks);

/// The request with everything decided that it leaves open: a schedule's name, node_size, ahead, and no machine. This
/// is what `auto` means everywhere. Throws Error(usage) for a problem that is none, and what find_machine throws.
std::variant<ScheduleRequest, WhyNot> decided(const Problem& problem, int ranks, ScheduleRequest request);

}  // namespace distattn
#pragma GCC visibility pop

#pragma once
/// The planner: from a request to proved programs, and from these to what they would cost, without arithmetic on
/// tensors.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "distattn/lower.hpp"
#include "distattn/request.hpp"
#include "distattn/table.hpp"
#include "distattn/timeline.hpp"
#include "distattn/verify.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// One pass of a plan, counted. Bytes are those of messages' payloads.
struct PassPlan {
  std::string schedule;  ///< "F/B" where the passes of a pair differ
  std::int64_t seq_q = 0;
  Pass pass = Pass::forward;
  int ranks = 1;
  Mode mode = Mode::overlapped;
  Routes routes;
  Counts counts;          ///< bytes_far: to other nodes of the machine, whether routes know of them or not
  double idle_ideal = 0;  ///< share of rank-time without compute on infinite links, work counted in visible pairs
  double predicted_s = std::numeric_limits<double>::quiet_NaN();  ///< NaN: no machine was given
};

/// A schedule resolved, lowered and proved for all ranks: the same for each, so that ranks in one process share one.
/// Immutable after construction; safe to share between threads.
class AttentionPlan {
 public:
  /// For programs that will run. Throws the message if plan() has no plan.
  AttentionPlan(const Problem& problem, int ranks, const ScheduleRequest& request);
  /// From programs that were made elsewhere: a forward pass, and perhaps a backward pass of the same problem with the
  /// same owners of its tokens.
  /// Throws Error(usage) when they are not that, or fail their proof.
  explicit AttentionPlan(std::vector<Schedule> passes);
  ~AttentionPlan();
  AttentionPlan(AttentionPlan&&) noexcept;
  AttentionPlan& operator=(AttentionPlan&&) noexcept;

  /// Characters of a name: ranks tell it to each other.
  static constexpr std::size_t longest_name = 999;

  int ranks() const;
  /// The schedules of the two passes as "F" or "F/B".
  std::string name() const;
  /// Given with name() as node_size and ahead, they make the same plan again. Of programs that were made elsewhere
  /// `ahead` is not known, and 0.
  Routes routes() const;
  /// False for a backward pass that the request did not ask for; what follows must not be called for it.
  bool has(Pass pass) const;
  const Outline& outline(Pass pass) const;
  const Tiles& tiles(Pass pass) const;
  /// Counts over all ranks (of the proof).
  const Counts& counts(Pass pass) const;
  /// Bytes of the rank that needs most, all passes together.
  std::int64_t memory_bytes() const;
  /// Of problem, owners and the programs of all ranks: equal for plans that can run together, and by no more than
  /// chance (1 in 2^64) for others.
  std::uint64_t fingerprint() const;
  RankProgram program(Pass pass, Rank rank) const;
  /// The programs of all ranks.
  Schedule schedule(Pass pass) const;
  /// When every step would run on a machine whose ranks compute with `threads` threads. Throws Error(usage) as simulate
  /// does.
  Timeline predict(Pass pass, const Machine& machine, int threads = 1) const;

 private:
  struct State;
  explicit AttentionPlan(std::unique_ptr<State> state);
  friend std::variant<AttentionPlan, WhyNot> plan(const Problem&, int, const ScheduleRequest&);
  friend std::vector<PassPlan> predict(const AttentionPlan&, const Machine*, int);
  std::unique_ptr<State> state_;
};

using Planned = std::variant<AttentionPlan, WhyNot>;

/// The one way from a request to a plan: decides what is open, resolves the name, lowers, proves rank by rank on as
/// many threads as there are cores, and compares the buffers with the memory. If the request holds a Machine by value,
/// predict() will be asked about that one: the plan keeps what it needs, so that programs are made only once.
/// Throws Error(usage) as decided() does, for a name that is not understood, and if such a machine has too few ranks or
/// states no rates for the type.
Planned plan(const Problem& problem, int ranks, const ScheduleRequest& request);

/// The passes of a plan, on a machine whose ranks compute with `threads` threads; without one, no time is predicted.
/// Throws Error(usage) as simulate does.
std::vector<PassPlan> predict(const AttentionPlan& plan, const Machine* machine = nullptr, int threads = 1);

/// One JSON object, as in the array that `distattn plan --json` prints.
std::string to_json(const PassPlan& plan);

}  // namespace distattn
#pragma GCC visibility pop

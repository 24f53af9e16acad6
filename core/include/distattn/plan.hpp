#pragma once
/// The planner: makes proved programs from a request and predicts their cost, without any arithmetic on tensors.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "distattn/lower.hpp"
#include "distattn/request.hpp"
#include "distattn/simulate.hpp"
#include "distattn/table.hpp"
#include "distattn/timeline.hpp"
#include "distattn/verify.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// The counts and the predicted time of one pass of a plan. Bytes count the payloads of messages.
struct PassPlan {
  std::string schedule;  ///< "F/B" if the two passes have different schedules
  std::int64_t seq_q = 0;
  Pass pass = Pass::forward;
  int ranks = 1;
  Mode mode = Mode::overlapped;
  Routes routes;
  Counts counts;          ///< bytes_far counts messages to other nodes of the machine, even if routes ignore nodes
  double idle_ideal = 0;  ///< idle share of all ranks' time with infinitely fast links; work counts visible pairs
  /// Seconds that no schedule can be below on the machine: balanced work at its best rate, and packing. NaN: as
  /// predicted_s.
  double lower_bound_s = std::numeric_limits<double>::quiet_NaN();
  double predicted_s = std::numeric_limits<double>::quiet_NaN();  ///< NaN: no machine was given
  double expansion_flops = 0;                                     ///< FLOPs of the rank that expands most latents
};

/// A schedule that is resolved, lowered and proved for all ranks. It does not depend on the rank, so that ranks in one
/// process can share it. Immutable after construction; safe to share between threads.
class AttentionPlan {
 public:
  /// Calls plan() and throws the message of WhyNot if there is no plan.
  AttentionPlan(const Problem& problem, int ranks, const ScheduleRequest& request);
  /// Takes programs that were made elsewhere: a forward pass, optionally followed by a backward pass of the same
  /// problem with the same owners of tokens. Throws Error(usage) if they are anything else or fail their proof.
  explicit AttentionPlan(std::vector<Schedule> passes);
  ~AttentionPlan();
  AttentionPlan(AttentionPlan&&) noexcept;
  AttentionPlan& operator=(AttentionPlan&&) noexcept;

  /// Largest number of characters in a schedule's name, because ranks send it to each other.
  static constexpr std::size_t longest_name = 999;

  int ranks() const;
  /// The schedules of the two passes as "F" or "F/B".
  std::string name() const;
  /// A request with this name(), node_size and ahead makes the same plan again. For programs that were made elsewhere,
  /// `ahead` is unknown and 0 here.
  Routes routes() const;
  /// Whether the plan has that pass. It always has the forward pass, and the backward pass if it was requested. The
  /// functions below must not be called for a pass that the plan does not have.
  bool has(Pass pass) const;
  /// The placement of "placed" as JSON, which with name() and routes() makes the same plan again; empty for others.
  const std::string& layout() const;
  const Outline& outline(Pass pass) const;
  const Tiles& tiles(Pass pass) const;
  /// Counts over all ranks, as the proof found them.
  const Counts& counts(Pass pass) const;
  /// Largest number of bytes that a rank needs for its buffers, all passes together.
  std::int64_t memory_bytes() const;
  /// A hash of the problem, the owners of tokens and the programs of all ranks. Plans that can run together have the
  /// same fingerprint; other plans share it only by chance (1 in 2^64).
  std::uint64_t fingerprint() const;
  RankProgram program(Pass pass, Rank rank) const;
  /// The programs of all ranks.
  Schedule schedule(Pass pass) const;
  /// Predicts when every step runs on a machine whose ranks compute with `threads` threads. Throws Error(usage) as
  /// simulate does.
  Timeline predict(Pass pass, const Machine& machine, int threads = 1) const;

 private:
  struct State;
  explicit AttentionPlan(std::unique_ptr<State> state);
  friend std::variant<AttentionPlan, WhyNot> plan(const Problem&, int, const ScheduleRequest&);
  friend std::vector<PassPlan> predict(const AttentionPlan&, const Machine*, int, const Latents*);
  std::unique_ptr<State> state_;
};

using Planned = std::variant<AttentionPlan, WhyNot>;

/// The only way from a request to a plan. Decides what the request leaves open, resolves the name, lowers, proves the
/// programs rank by rank with one thread per core, and compares the size of the buffers with the memory. If the request
/// holds a Machine by value, the plan keeps what predict() needs for that machine, so that programs are made only once.
/// Throws Error(usage) as decided() does, for an unknown name, and if a machine given by value has too few ranks or no
/// rates for the element type.
Planned plan(const Problem& problem, int ranks, const ScheduleRequest& request);

/// Counts each pass of a plan and predicts its time on a machine whose ranks compute with `threads` threads. Without a
/// machine, no time is predicted. With latents, keys and values are sent as those: bytes_sent and bytes_far count them,
/// peak_remote_bytes and memory_bytes do not. Throws Error(usage) as simulate does.
std::vector<PassPlan> predict(const AttentionPlan& plan, const Machine* machine = nullptr, int threads = 1,
                              const Latents* latents = nullptr);

/// Returns one JSON object, as in the array that `distattn plan --json` prints.
std::string to_json(const PassPlan& plan);

}  // namespace distattn
#pragma GCC visibility pop

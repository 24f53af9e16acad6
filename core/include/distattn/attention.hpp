#pragma once
/// What a user calls: one exact attention over ranks, forward and backward.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "distattn/choose.hpp"
#include "distattn/engine.hpp"
#include "distattn/execute.hpp"
#include "distattn/lower.hpp"
#include "distattn/machine.hpp"
#include "distattn/problem.hpp"
#include "distattn/table.hpp"
#include "distattn/timeline.hpp"
#include "distattn/verify.hpp"

#pragma GCC visibility push(default)
namespace distattn {

struct AttentionOptions {
  /// "F" or "F/B" (table.hpp), or what rank_schedules finds best on `machine`, as far as that was calibrated. An
  /// Attention has rank 0 choose for all; a plan by itself is for whoever makes it.
  std::string schedule = "auto";
  bool own_mode = true;  ///< use each schedule's own mode instead of `mode`
  Mode mode = Mode::overlapped;
  int node_size = 0;           ///< as in Routes; 0: the machine's, where it has several nodes
  std::optional<int> ahead{};  ///< as in Routes; nothing: auto searches it, for a named schedule 0
  bool backward = false;       ///< prepare the backward pass too
  /// Of a rank's buffers, both passes together: auto chooses what fits, any other schedule is refused beyond it.
  std::int64_t memory_bytes = std::numeric_limits<std::int64_t>::max();
  int threads = 0;  ///< that a rank computes with, for auto to weigh; 0: its share of the machine's cores
  /// A machine, or its name or file (find_machine), which is read when it is needed: where rank 0 chooses for all, on
  /// rank 0 alone. Empty: this machine, and for a named schedule one node. World::placed() describes one that ranks of
  /// a launcher share.
  std::variant<std::string, Machine> machine{};
};

/// The routes that the options ask for on a machine: between its nodes unless `node_size` says otherwise, straight
/// where one node has all ranks. Throws Error(usage) for `ahead` without nodes that messages could travel between.
Routes routes_of(const AttentionOptions& options, const Machine& machine, int ranks);
/// What auto must respect on a machine, with routes_of() or others.
ChoiceLimits limits_of(const AttentionOptions& options, const Routes& routes, const Machine& machine, int ranks);
/// The options with everything decided that they leave open: a schedule's name, node_size, ahead, and no machine. This
/// is what `auto` means everywhere. Throws Error(usage) as routes_of and rank_schedules do.
AttentionOptions decided(const Problem& problem, int ranks, AttentionOptions options);
/// Throws Error(usage) where a rank's buffers of these passes need more.
void check_memory(const std::string& name, const std::vector<const Counts*>& passes, std::int64_t memory_bytes);

/// A schedule resolved, lowered and proved for all ranks: the same for each, so that ranks in one process share one.
/// Immutable after construction; safe to share between threads.
class AttentionPlan {
 public:
  /// Throws Error(usage) when the schedule does not apply or needs too much memory, or a program of any rank fails its
  /// proof.
  AttentionPlan(const Problem& problem, int ranks, const AttentionOptions& options);
  /// From programs that were made elsewhere: a forward pass, and perhaps a backward pass of the same problem with the
  /// same owners of its tokens.
  /// Throws Error(usage) when they are not that, or fail their proof.
  explicit AttentionPlan(std::vector<Schedule> passes);
  ~AttentionPlan();
  AttentionPlan(AttentionPlan&&) noexcept;
  AttentionPlan& operator=(AttentionPlan&&) noexcept;

  int ranks() const;
  /// The schedules of the two passes as "F" or "F/B".
  std::string name() const;
  /// Given with name() as node_size and ahead, they make the same plan again. Of programs that were made elsewhere
  /// `ahead` is not known, and 0.
  Routes routes() const;
  /// False for a backward pass that the options did not ask for; what follows must not be called for it.
  bool has(Pass pass) const;
  const Outline& outline(Pass pass) const;
  const Tiles& tiles(Pass pass) const;
  /// Counts over all ranks (of the proof).
  const Counts& counts(Pass pass) const;
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
  std::unique_ptr<State> state_;
};

/// One rank's handle for one problem: planned and proved once, then called as often as one likes without allocating.
/// Construction and every call are collectives over the transport's ranks, in one order on all of them. A rank whose
/// plan is another than rank 0's, or that has no memory for it, ends the run of all. Device and transport must outlive
/// it.
///
/// Training. forward() writes (o, lse) into memory that the caller owns, backward() reads them there and runs no
/// forward; the handle holds nothing of a call once it has returned. One handle therefore serves every layer, and
/// what happens to a layer's (o, lse) between its two calls is the caller's checkpointing policy:
///   none:                   keep q, k, v, o, lse; backward().
///   layer:                  drop all five; recompute q, k, v, call forward() again, then backward(). The second
///                           forward sends what the first did and, on a deterministic device, gives its bits.
///   attention output:       keep o and lse; recompute q, k, v from the layer's input, then backward(): the
///                           attention forward and its messages happen once (DistFlashAttn §3.3).
///   … offloaded:            as before, but o and lse rest in other memory and are copied back before backward().
/// What goes for lse goes for lse_low (Bindings), where it is bound: bind it in both calls where scores are large, as
/// in models whose keys have a bias. (o, lse) alone is good for what partial.hpp says.
/// Every rank must choose alike, since each call is a collective.
///
/// Decoding. A handle is for one length, and one serves all layers of a token. Where the layout is striped, tokens stay
/// with their ranks while the sequence grows, in place: a rank binds the first key_tokens() of its cache. With any
/// other layout, plan for the cache's capacity and hide the rest by band_mask({{.lo = capacity − length}}): queries
/// hold the capacity's last positions. auto searches anew for every handle, which costs more than planning does: name
/// what it chose first, AttentionPlan::name() and routes().
///
/// Queued passes. forward(bindings, after) and backward(bindings, after) queue a pass and return an event, which
/// completes when results are in place. Passes run in the order of their calls, those that wait included, on this
/// handle and on all that share its device or its transport; a queued one also begins after `after`. All ranks queue
/// the same passes in one order, whether they wait for them or not. The memory of the tensors must stay until the pass
/// has ended, inputs unchanged; views may go, and so may the event.
///   Threads: where a pass only has to be appended to the device's queue, the calling thread does it, and waits for
///     nothing: one rank, on a GPU, with tensors in its memory, after nothing or passes on a GPU. Any other pass runs
///     on a thread of the handle, which the first of them starts: on CPUs, from or to tensors of the host, and among
///     several ranks, whose messages a host moves or watches.
///   A caller's stream (DeviceOptions::stream): a pass begins after what is there, and what the caller puts there after
///     the call begins after the pass. To see to that, a call whose pass runs on the handle's thread returns only when
///     everything is on the stream: after the passes before it, `after`, and those exchanges that block a host.
///   Failures: tensors that are wrong are refused by the call. Any other failure, `after`'s included, is thrown by the
///     event's wait() and that of all later passes, by check(), wait(), and later calls. It ends the passes of the
///     other ranks, and theirs this one's, within the same deadlines as calls that wait.
///   The end: the destructor waits for queued passes, since other ranks count on them; `after` has to complete by
///     itself. Transport::abort() ends them early. Events may outlive the handle.
///
/// Failures. A call whose tensors are missing or not the rank's shard throws Error(usage) before it begins: nothing was
/// sent, everything is as before, and ranks whose call did begin wait for this one's. It may call again; if it does
/// not, it ends them with Transport::abort() (World::run does so for an exception that leaves its body). Any other
/// failure ends the call on all ranks, and with it the handle, its device and its transport for good: later calls throw
/// the first failure again. Make all three anew, on every rank.
///
/// Threads. Handles that share a device or a transport (also as groups of it) are called by one thread at a time, also
/// to construct and destroy them. Events belong to any thread.
class Attention {
 public:
  /// Throws Error(usage) as AttentionPlan and Executor do.
  Attention(const Problem& problem, const AttentionOptions& options, Device& device, Transport& transport);
  /// With a plan that other ranks of this process may share. Throws Error(usage) when it is for another number of
  /// ranks.
  Attention(std::shared_ptr<const AttentionPlan> plan, Device& device, Transport& transport);
  ~Attention();
  Attention(Attention&&) noexcept;
  Attention& operator=(Attention&&) noexcept;

  const AttentionPlan& plan() const;
  const Outline& outline(Pass pass) const;
  const RankProgram& program(Pass pass) const;
  /// Counts over all ranks (of the proof).
  const Counts& counts(Pass pass) const;
  /// Tokens of this rank's shards, and where they stand in the sequence.
  std::int64_t query_tokens() const;
  std::int64_t key_tokens() const;
  std::vector<std::int64_t> query_positions() const;
  std::vector<std::int64_t> key_positions() const;

  /// o and lse of this rank's queries. The timeline is valid until the next call.
  const Timeline& forward(const Bindings& bindings);
  /// dq, dk, dv from the global (o, lse), which the caller kept. Throws Error(usage) when the options did not ask for
  /// it.
  const Timeline& backward(const Bindings& bindings);

  /// Queues the pass, to begin after `after`, and returns. Throws Error(usage) as the calls that wait do, and the
  /// failure of an earlier pass.
  Event forward(const Bindings& bindings, const Event& after);
  Event backward(const Bindings& bindings, const Event& after);
  /// Throws the first failure of the passes that have ended. Does not wait for others.
  void check();
  /// Waits for all queued passes and throws their first failure.
  void wait();
  /// Of the latest such pass that ended well, once all queued ones have: waits for them and throws as wait() does.
  /// Valid until the next call.
  const Timeline& timeline(Pass pass);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distattn
#pragma GCC visibility pop

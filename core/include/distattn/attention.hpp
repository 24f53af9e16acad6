#pragma once
/// What a user calls: one exact attention over ranks, forward and backward.

#include <cstdint>
#include <memory>
#include <vector>

#include "distattn/engine.hpp"
#include "distattn/execute.hpp"
#include "distattn/plan.hpp"
#include "distattn/problem.hpp"
#include "distattn/timeline.hpp"

#pragma GCC visibility push(default)
namespace distattn {

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
///   A caller's stream (GpuOptions::stream): a pass begins after what is there, and what the caller puts there after
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
  Attention(const Problem& problem, const ScheduleRequest& request, Device& device, Transport& transport);
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
  /// dq, dk, dv from the global (o, lse), which the caller kept. Throws Error(usage) when the request did not ask for
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

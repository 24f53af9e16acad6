#pragma once
/// The attention that users call: one exact attention over ranks, forward and backward.

#include <cstdint>
#include <memory>
#include <vector>

#include "distattn/engine.hpp"
#include "distattn/execute.hpp"
#include "distattn/layers.hpp"
#include "distattn/plan.hpp"
#include "distattn/problem.hpp"
#include "distattn/timeline.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// One rank's handle for one problem. It is planned and proved once, and then called any number of times without
/// allocating memory. Construction and every call are collectives over the transport's ranks, in the same order on all
/// ranks. A rank whose plan differs from rank 0's, or that has too little memory, ends the run on all ranks. Device and
/// transport must outlive the handle. Bindings (engine.hpp) states the shapes of the tensors.
///
/// Training. forward() writes (o, lse) into memory of the caller; backward() reads them there and does not run forward
/// again. The handle keeps nothing of a call after it has returned. One handle can therefore serve every layer, and the
/// caller's checkpointing policy decides what happens to a layer's (o, lse) between its two calls:
///   none:                   keep q, k, v, o, lse; call backward().
///   layer:                  free all five; recompute q, k, v, call forward() again, then backward(). The second
///                           forward sends the same messages as the first and, on a deterministic device, returns the
///                           same bits.
///   attention output:       keep o and lse; recompute q, k, v from the layer's input, then call backward(). The
///                           attention forward and its messages happen once (DistFlashAttn §3.3).
///   … offloaded:            the same, but o and lse are kept in other memory and copied back before backward().
/// Treat lse_low (Bindings) like lse. Bind it in both calls if scores are large, as in models whose keys have a bias;
/// partial.hpp states the accuracy without it. Every rank must choose the same policy, because each call is a
/// collective.
///
/// Decoding. A handle is made for one length and can serve all layers of a token. With layout "striped" or "striped:B",
/// tokens stay on their ranks and in their places while the sequence grows: a rank binds the first key_tokens() of its
/// cache. With any other layout, plan for the capacity of the cache and hide its unused part by
/// band_mask({{.lo = capacity − length}}): the queries are at the capacity's last positions. auto searches again for
/// every handle, which takes longer than planning: let auto choose once, then request AttentionPlan::name() and
/// routes().
///
/// Queued passes. forward(bindings, after) and backward(bindings, after) queue a pass and return an event, which
/// completes when the results are in place. Passes run in the order of their calls, including calls that wait, over all
/// handles that share a device or a transport. A queued pass begins after `after` has completed, too. All ranks must
/// queue the same passes in the same order, whether they wait for them or not. Until the pass has ended, the caller
/// must keep the memory of the tensors and must not change inputs; it may destroy the views and the event earlier.
///   Threads: the calling thread appends the pass to the device's queue, without waiting, if there is one rank, it
///     computes on a GPU, all tensors lie in that GPU's memory, and the pass follows nothing but passes on a GPU. A
///     thread of the handle, started by the first such pass, runs every other pass: on CPUs, with tensors in host
///     memory, and with several ranks, because a host sends or watches their messages.
///   A caller's stream (GpuOptions::stream): a pass begins after the work that is on the stream, and work that the
///     caller puts on it after the call begins after the pass. Therefore, if the handle's thread runs the pass, the
///     call returns only when all work of the pass is on the stream. Before that, it waits for earlier passes, for
///     `after`, and for those exchanges that block a host.
///   Failures: the call refuses wrong tensors. Any other failure, including one of `after`, is thrown by wait() of the
///     event and of all later passes' events, by check() and wait(), and by later calls. A failure on one rank ends the
///     pass on all ranks, within the same deadlines as in calls that wait.
///   Destruction: the destructor waits for queued passes, because other ranks wait for them; `after` must complete
///     without it. Transport::abort() ends the passes early. Events may outlive the handle.
///
/// Failures. If tensors are missing or are not the rank's shard, a call throws Error(usage) before it begins. It has
/// sent nothing and changed nothing, and ranks whose call did begin wait for this rank. This rank may call again;
/// otherwise it must end the others with Transport::abort() (World::run does so for an exception that leaves its body).
/// Any other failure ends the call on all ranks. The handle, its device and its transport cannot be used afterwards:
/// later calls throw the first failure again. Construct all three again, on every rank.
///
/// Threads. Only one thread at a time may call, construct or destroy handles that share a device or a transport
/// (including groups of the transport). Events may be used by any thread.
class Attention {
 public:
  /// Throws Error as AttentionPlan and Executor do, and Error(peer) if the ranks' plans differ.
  Attention(const Problem& problem, const ScheduleRequest& request, Device& device, Transport& transport);
  /// Takes a plan that other ranks of this process may share. Throws Error(usage) if it is for another number of ranks.
  Attention(std::shared_ptr<const AttentionPlan> plan, Device& device, Transport& transport);
  ~Attention();
  Attention(Attention&&) noexcept;
  Attention& operator=(Attention&&) noexcept;

  const AttentionPlan& plan() const;
  const Outline& outline(Pass pass) const;
  const RankProgram& program(Pass pass) const;
  /// Counts over all ranks, as the proof found them.
  const Counts& counts(Pass pass) const;
  /// Number of tokens in this rank's shards, and their positions in the whole sequence.
  std::int64_t query_tokens() const;
  std::int64_t key_tokens() const;
  std::vector<std::int64_t> query_positions() const;
  std::vector<std::int64_t> key_positions() const;

  /// Computes o and lse of this rank's queries. The timeline is valid until the next call.
  const Timeline& forward(const Bindings& bindings);
  /// Computes dq, dk, dv from (o, lse), which the caller kept from forward(). Throws Error(usage) if the request did
  /// not ask for the backward pass.
  const Timeline& backward(const Bindings& bindings);

  /// Queues a pass that begins after `after`, and returns. Throws Error(usage) as the calls that wait do, and the
  /// failure of an earlier pass.
  Event forward(const Bindings& bindings, const Event& after);
  Event backward(const Bindings& bindings, const Event& after);
  /// Throws the first failure of the passes that have ended. Does not wait for the others.
  void check();
  /// Waits for all queued passes and throws their first failure.
  void wait();
  /// Waits for all queued passes, throws as wait() does, and returns the timeline of the last `pass` that succeeded.
  /// The timeline is valid until the next call.
  const Timeline& timeline(Pass pass);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Handles for layers that attend differently, one for each kind, in their order: all have the same owners of tokens,
/// so that tensors stay where they are between layers. auto and placed are decided on rank 0 for all kinds together
/// (layers.hpp). Collective; throws as the constructors do.
std::vector<Attention> attentions(const std::vector<LayerKind>& kinds, const ScheduleRequest& request, Device& device,
                                  Transport& transport);

}  // namespace distattn
#pragma GCC visibility pop

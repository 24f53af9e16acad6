#pragma once
/// Runs one rank's program: three lanes that submit their steps in order, beside each other. The compute lane is the
/// thread that calls run(). Exchanges that overlap it run on a thread of their lane; one that it has to wait for, and
/// that has not begun, it runs itself.

#include <functional>
#include <memory>

#include "distattn/engine.hpp"
#include "distattn/schedule.hpp"
#include "distattn/timeline.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// A program made ready once (memory, lane threads) and run as often as one likes; the second run allocates nothing.
/// All ranks run together: run() is a collective. Not thread-safe; one Executor a rank.
class Executor {
 public:
  /// Throws Error(usage) when the device cannot compute the problem or the transport cannot reach its memory.
  /// `outline` and `program` are kept by reference.
  Executor(const Outline& outline, const RankProgram& program, Rank rank, Device& device, Transport& transport);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Loads inputs, runs every step, stores results. The first failure of any lane aborts the others and is thrown.
  /// Throws Error(usage), before anything begins, for tensors that are not the rank's shards: it may be called again.
  /// The timeline holds this rank's spans and stays valid until the next run.
  const Timeline& run(const Bindings& bindings) { return run(bindings, {}, {}); }
  /// The same once `after` has completed; its failure is one of the run. `queued` is called, by this thread, when all
  /// work of the compute lane stands in the device's queue, if it comes to that.
  const Timeline& run(const Bindings& bindings, const Event& after, const std::function<void()>& queued);

  /// Throws Error(usage) as run() does.
  void check(const Bindings& bindings) const;
  /// Whether submit() can run a pass on these tensors: one rank alone, on a device with a queue that has them in its
  /// memory.
  bool can_submit(const Bindings& bindings) const;
  /// Appends a pass to the device's queue and returns. The event says how it ended; one thread at a time may use it,
  /// and has to wait for it before the executor ends. Throws the failure of an earlier run.
  Event submit(const Bindings& bindings);

  /// Of the last run that ended well.
  const Timeline& timeline() const;
  const BufferTable& buffers() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distattn
#pragma GCC visibility pop

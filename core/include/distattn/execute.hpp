#pragma once
/// Runs one rank's program on three concurrent lanes; each lane submits its steps in order. The compute lane is the
/// thread that calls run(). Exchanges that overlap computation run on the threads of their lanes. If the calling thread
/// has to wait for an exchange that has not begun, it runs that exchange itself.

#include <functional>
#include <memory>

#include "distattn/engine.hpp"
#include "distattn/schedule.hpp"
#include "distattn/timeline.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Prepares a program once (memory, lane threads) and runs it any number of times; only the first run allocates memory.
/// run() is a collective: all ranks run together. Not thread-safe; each rank has an Executor of its own.
class Executor {
 public:
  /// Throws Error(usage) if the device cannot compute the problem or the transport cannot reach its memory, and
  /// Error(environment) if memory or threads are missing. All arguments must outlive the executor.
  Executor(const Outline& outline, const RankProgram& program, Rank rank, Device& device, Transport& transport);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Loads the inputs, runs every step and stores the results. The first failure of a lane ends the other lanes and is
  /// thrown, as it is by every later run. Throws Error(usage) before anything begins if the tensors are not the rank's
  /// shards; run() may then be called again. The timeline holds this rank's spans and is valid until the next run.
  const Timeline& run(const Bindings& bindings) { return run(bindings, {}, {}); }
  /// Does the same after `after` has completed; if `after` fails, the run fails. Calls `queued` on the calling thread
  /// when the device has all work of the compute lane in its queue, unless the run fails before that.
  const Timeline& run(const Bindings& bindings, const Event& after, const std::function<void()>& queued);

  /// Throws Error(usage) if the tensors are not the rank's shards.
  void check(const Bindings& bindings) const;
  /// Whether submit() can run a pass on these tensors: there is only one rank, its device has a queue, and all tensors
  /// lie in that device's memory.
  bool can_submit(const Bindings& bindings) const;
  /// Appends a pass to the device's queue and returns its event. Only one thread at a time may use the event, and the
  /// caller must wait for it before it destroys the executor. Throws the failure of an earlier run.
  Event submit(const Bindings& bindings);

  /// The timeline of the last run that succeeded.
  const Timeline& timeline() const;
  const BufferTable& buffers() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distattn
#pragma GCC visibility pop

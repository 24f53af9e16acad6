#pragma once
/// The interfaces that a backend implements: a Device computes steps, a Transport exchanges messages.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "distattn/error.hpp"
#include "distattn/event.hpp"
#include "distattn/features.hpp"
#include "distattn/schedule.hpp"
#include "distattn/tensor.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// One rank's tensors: all heads of the tokens that the rank owns, segment after segment, as [batch, tokens, heads,
/// head_dim]; lse and lse_low as statistics_view. Forward reads q, k, v and writes o, lse; backward reads q, k, v, d_o,
/// o, lse and writes dq, dk, dv. Elements are converted if their type is not the problem's; lse is fp32 or fp64. A
/// tensor may lie in any memory that Device::takes(), with any strides that give each element of a result its own
/// place.
///
/// lse_low is optional. It holds the part of the log-sum-exp that an fp32 lse cannot hold. If it is bound, forward
/// writes it and backward reads it. Without it, backward's weights are off by up to 6e-8·|lse|, equally for a whole row
/// (partial.hpp). That is so with a 16-bit Problem::wire too, where backward does not read it. A problem in fp64 has no
/// lse_low.
///
/// sink_logits and dsink_logits are heads_view()s, of all heads on every rank, if the problem has sink logits
/// (Scores::sink_logits), and otherwise not bound. Both passes read the former. Backward writes to the latter the
/// rank's share, which is the sum over the queries that it owns, as of any parameter that all ranks have: the gradient
/// is the sum of the shares of all ranks.
///
/// max_logit, [batch, 1, heads, 1], is bound in a forward pass if the problem asks for it (Scores::max_logit). Forward
/// writes the rank's share, the largest of the visible scores that the rank computed, -inf if there is none: the
/// largest of the shares of all ranks is that of the head. Scores have their cap and bias; sinks are none.
///
/// With dropout (Scores::dropout) a pair is dropped where a word of Philox 4×32-10 says so, of the key `dropout_seed`
/// and the counter (key position / 4, query position, sequence · heads + head, `dropout_offset`). Both passes of one
/// call, and all ranks, must be given the same two numbers; another call takes another offset.
struct Bindings {
  ConstTensorView q{}, k{}, v{};
  TensorView o{}, lse{}, lse_low{};
  ConstTensorView d_o{};
  TensorView dq{}, dk{}, dv{};
  ConstTensorView sink_logits{};
  TensorView dsink_logits{}, max_logit{};
  std::uint64_t dropout_seed = 0;
  std::uint32_t dropout_offset = 0;
};

/// The memory of a rank's program: one block in a memory space, the slots inside it, and the place of each buffer's
/// parts. Outline and program must outlive it.
class BufferTable {
 public:
  /// A part of a buffer and its place.
  struct Part {
    std::byte* data = nullptr;
    PartShape shape;
  };

  /// `memory` must hold slots_bytes(program) bytes and be at least 64-byte aligned.
  BufferTable(const Outline& outline, const RankProgram& program, Rank rank, MemorySpace space,
              std::shared_ptr<std::byte> memory);
  virtual ~BufferTable() = default;
  BufferTable(const BufferTable&) = delete;
  BufferTable& operator=(const BufferTable&) = delete;

  const Outline& outline() const { return *outline_; }
  const RankProgram& program() const { return *program_; }
  Rank rank() const { return rank_; }
  /// A number that all ranks have for one pass of one attention, and other passes and attentions only by chance.
  /// Transports mark messages with it, so that ranks that make different calls do not take each other's messages.
  std::uint64_t call() const { return call_; }
  MemorySpace space() const { return space_; }
  const BufferDecl& decl(BufferId buffer) const { return program_->buffers[index(buffer)]; }
  std::span<const Part> parts(BufferId buffer) const {
    const auto [first, count] = where_[index(buffer)];
    return {parts_.data() + first, count};
  }
  /// Index of `step` in the program. Accepts a step of the program, or a copy of an exchange with other rank numbers
  /// (subgroup.hpp), which is identified by number, lane and due.
  std::size_t index_of(const Step& step) const;
  /// The whole block, which a transport registers once.
  std::span<std::byte> memory() const { return {memory_.get(), bytes_}; }
  const std::shared_ptr<std::byte>& owner() const { return memory_; }
  /// Returns an object that a transport keeps for this memory, e.g. its registration with a network card. Calls `make`
  /// when `keeper` first asks. The object is destroyed with the table, before the memory is freed. Any thread.
  void* kept_for(const void* keeper, const std::function<std::shared_ptr<void>()>& make);
  /// Makes the device that has the memory current in the calling thread, as libraries that access GPU memory expect.
  /// Any thread.
  virtual void make_current() {}
  /// Copies between two tables of one process, or between a table and host memory, also if only a device can copy it.
  /// Returns when the copy is complete. Any thread.
  virtual void copy(std::byte* into, const std::byte* from, std::size_t bytes);

 private:
  struct Where {
    std::size_t first, count;
  };
  struct Kept {
    const void* keeper;
    std::shared_ptr<void> what;
  };
  const Outline* outline_;
  const RankProgram* program_;
  Rank rank_;
  std::uint64_t call_;
  MemorySpace space_;
  std::shared_ptr<std::byte> memory_;
  std::size_t bytes_;
  std::vector<Part> parts_;
  std::vector<Where> where_;
  std::mutex kept_mutex_;  // guards kept_
  std::vector<Kept> kept_;
};

/// Number of bytes of a program's memory: its slots one after the other, each on a 64-byte boundary.
std::size_t slots_bytes(const RankProgram& program);

/// Returns the place of an error for its text: "rank 2, step 5, near lane".
std::string place_of(Rank rank, const Step& step);
/// Returns as_error(cause) with the place in front of its text.
Error error_at(Rank rank, const Step& step, const std::exception_ptr& cause);

/// A rank's program on a device: its memory and whatever the device prepared for it. The device, the outline and the
/// program must outlive it. A run consists of load(), the program's compute steps and store(). Runs of one program must
/// not overlap: the next one begins after the event of store() has completed or, on a device with a queue(), as soon as
/// store() has returned. Runs of several programs may overlap, from different threads.
class DeviceProgram : public BufferTable {
 public:
  using BufferTable::BufferTable;
  /// Packs the rank's inputs into its buffers; backward also computes delta = rowsum(dO ∘ O). The first step of each
  /// lane is submitted after the returned event. Steps may also read and write the tensors directly, so that the caller
  /// must not change or free them until store() has completed.
  virtual Event load(const Bindings& bindings) = 0;
  /// Starts a compute step after every event in `after`; may block the calling thread until then. Steps are submitted
  /// in order and one at a time, but not always from the same thread. A failure is stored in the event and names the
  /// rank and the step.
  virtual Event submit(const Step& step, std::span<const Event> after) = 0;
  /// Unpacks the rank's results into the tensors of load() when all `steps` (those of the program, in order) have
  /// ended. If head groups share a key head, sums its gradients in group order.
  /// load() and store() throw a failure or store it in their event. After either has thrown, or wait() on its event has
  /// returned or thrown, its work no longer accesses the tensors.
  virtual Event store(const Bindings& bindings, std::span<const Event> steps) = 0;
};

class CacheReader;
class Transport;

/// One of several kernels that a device has for the same tiles.
struct KernelVariant {
  std::string part;   ///< the part of a pass that it computes; kernels of one part replace each other
  std::string name;   ///< its name for GpuOptions::variant
  bool used = false;  ///< whether it is the default of its part
};

/// The queue to which load(), submit() and store() append a device's work: none, because they do the work themselves;
/// the device's own; or the caller's, to which the caller appends work too.
enum class WorkQueue : std::uint8_t { none, own, callers };

/// Computes the steps of programs. Called by one thread at a time, except abort().
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  virtual MemorySpace space() const = 0;
  /// Whether the caller's tensors may lie in that memory: the device's own memory, or the host's.
  virtual bool takes(MemorySpace tensors) const { return tensors == space() || tensors == MemorySpace::host; }
  /// The features of the device's kernels in that pass. A problem that needs any other feature is refused.
  virtual Features features(Pass pass) const = 0;
  /// Explains why the device cannot compute `problem` and says what it can compute; empty if it can. It can if it has
  /// all features that the problem needs and objection() is empty.
  std::string why_not(const Problem& problem, Pass pass) const;
  /// The kernels that the device can choose from for the tiles of `pass`; empty if it has no choice.
  virtual std::vector<KernelVariant> variants(const Problem& problem, Pass pass) const {
    static_cast<void>(problem), static_cast<void>(pass);
    return {};
  }
  virtual WorkQueue queue() const { return WorkQueue::none; }
  /// Makes all work that is appended to the queue later begin after `event`, without waiting for it here. Returns false
  /// if the device cannot do that.
  virtual bool follow(const Event& event) {
    static_cast<void>(event);
    return false;
  }
  /// Number of queries that an attention kernel takes at a time, as TileCosts::block; 1 if it is not known.
  virtual int query_block() const { return 1; }
  /// Largest number of queries of a tile whose heads read keys together, as FewQueries::queries.
  virtual int few_queries() const { return 0; }
  /// Allocates memory of space() for a caller's tensors: 64-byte aligned, not cleared. The device must outlive it.
  /// Throws Error(environment) if too little memory is left.
  virtual std::shared_ptr<std::byte> allocate_tensor(std::size_t bytes);
  /// Copies between that memory and the host's, or within either; returns when complete. Not during a run.
  virtual void copy(std::byte* into, const std::byte* from, std::size_t bytes);
  /// Prepares a program of `rank` for its first run. Outline, program and device must outlive the result.
  virtual std::unique_ptr<DeviceProgram> allocate(const Outline& outline, const RankProgram& program, Rank rank) = 0;
  /// What reads caches for serving (cache.hpp), which lives as long as the device; null: the device does not.
  virtual CacheReader* cache_reader() { return nullptr; }
  /// Ends all work of all programs with `error`: every pending event completes with it. Kernels check once per tile.
  /// The device cannot be used any more. Any thread.
  virtual void abort(const Error& error) noexcept = 0;
  /// The order of the passes that use this device, over all handles.
  PassOrder& order() { return order_; }
  /// Returns a transport for this device's memory over a transport that reaches only host memory, which must outlive
  /// it; null if the device has none.
  virtual std::unique_ptr<Transport> staged(Transport& over) {
    static_cast<void>(over);
    return nullptr;
  }

 protected:
  /// Any other reason not to compute a problem, e.g. its sizes, or a better text for a missing feature; empty: none.
  virtual std::string objection(const Problem& problem, Pass pass) const {
    static_cast<void>(problem), static_cast<void>(pass);
    return "";
  }

 private:
  PassOrder order_;
};

/// Exchanges the messages of one run at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  /// Whether the transport can send from and receive into that memory.
  virtual bool reaches(MemorySpace space) const = 0;
  /// Prepares the table's memory for this transport, e.g. registers it with a network card, which may take longer than
  /// a step. The executor calls it once for a program that exchanges messages; otherwise, the first step prepares the
  /// table.
  virtual void prepare(BufferTable& buffers) { static_cast<void>(buffers); }
  /// Starts an exchange after every event in `after`; may block the calling thread until then. Steps of one lane are
  /// submitted in order and one at a time, but not always from the same thread; steps of two lanes may be submitted
  /// concurrently, from different threads. A failure is stored in the event and names the rank and the step.
  virtual Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) = 0;
  /// Ends all exchanges with `error`: every pending event completes with it. The transport cannot be used any more. Any
  /// thread.
  virtual void abort(const Error& error) noexcept = 0;
  /// Called by the executor, for heartbeats: the compute lane has begun a step, or waits for another lane.
  virtual void computing(int number) noexcept { static_cast<void>(number); }
  virtual void resting() noexcept {}
  /// Sets the function that is called when another rank's failure has ended all exchanges, immediately and on any
  /// thread; null: none. Returns when no call of an earlier listener is in progress. A transport that learns of
  /// failures only in submit() calls no listener.
  virtual void on_failure(std::function<void(const Error&)> listener) {  // NOLINT(performance-*): who listens keeps it
    static_cast<void>(listener);
  }
  /// The order of the passes that use this transport, over all handles.
  virtual PassOrder& order() { return order_; }

 private:
  PassOrder order_;
};

/// A transport that forwards every call to another transport; derived classes override some calls. (A test checks that
/// this class forwards every function of Transport.)
class ForwardingTransport : public Transport {
 public:
  /// `over` must outlive it.
  explicit ForwardingTransport(Transport& over) : over_(over) {}

  std::string_view name() const override { return over_.name(); }
  Rank rank() const override { return over_.rank(); }
  int size() const override { return over_.size(); }
  bool reaches(MemorySpace space) const override { return over_.reaches(space); }
  void prepare(BufferTable& buffers) override { over_.prepare(buffers); }
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override {
    return over_.submit(step, buffers, after);
  }
  void abort(const Error& error) noexcept override { over_.abort(error); }
  void computing(int number) noexcept override { over_.computing(number); }
  void resting() noexcept override { over_.resting(); }
  void on_failure(std::function<void(const Error&)> listener) override { over_.on_failure(std::move(listener)); }
  PassOrder& order() override { return over_.order(); }

 protected:
  Transport& over() const { return over_; }

 private:
  Transport& over_;
};

}  // namespace distattn
#pragma GCC visibility pop

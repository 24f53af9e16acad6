#pragma once
/// What a backend implements: a Device computes steps, a Transport exchanges them.

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

/// One rank's tensors: its own shards, its segments' tokens one after the other in the order of segments, all heads.
/// lse, lse_low: as statistics_view. Forward reads q, k, v and writes o, lse; backward reads q, k, v, d_o, o, lse
/// and writes dq, dk, dv. Element types may differ from the problem's: they are converted on the way; lse has fp32 at
/// least. Each may lie in any memory that Device::takes(), with any strides as long as no two elements of a result lie
/// in one place.
///
/// lse_low may be left out: what an fp32 lse cannot hold of its log-sum-exp. Forward writes it and backward reads it
/// where it is given. Without it backward's weights are off by up to 6e-8 of |lse|, all of a row alike; partial.hpp. A
/// problem in fp64 has none.
struct Bindings {
  ConstTensorView q{}, k{}, v{};
  TensorView o{}, lse{}, lse_low{};
  ConstTensorView d_o{};
  TensorView dq{}, dk{}, dv{};
};

/// A rank program's memory: one block in some memory space, slots inside it, and where every buffer's parts lie.
/// Outline and program must outlive it.
class BufferTable {
 public:
  /// A part of a buffer, where it lies.
  struct Part {
    std::byte* data = nullptr;
    PartShape shape;
  };

  /// `memory` holds slots_bytes(program) bytes, 64-byte aligned at least.
  BufferTable(const Outline& outline, const RankProgram& program, Rank rank, MemorySpace space,
              std::shared_ptr<std::byte> memory);
  virtual ~BufferTable() = default;
  BufferTable(const BufferTable&) = delete;
  BufferTable& operator=(const BufferTable&) = delete;

  const Outline& outline() const { return *outline_; }
  const RankProgram& program() const { return *program_; }
  Rank rank() const { return rank_; }
  MemorySpace space() const { return space_; }
  const BufferDecl& decl(BufferId buffer) const { return program_->buffers[index(buffer)]; }
  std::span<const Part> parts(BufferId buffer) const {
    const auto [first, count] = where_[index(buffer)];
    return {parts_.data() + first, count};
  }
  /// Which step of the program this is: one of them, or of its exchanges a copy that names other ranks, as a group's
  /// (subgroup.hpp), which is known by number, lane and due.
  std::size_t index_of(const Step& step) const;
  /// The whole block: what a transport registers once.
  std::span<std::byte> memory() const { return {memory_.get(), bytes_}; }
  const std::shared_ptr<std::byte>& owner() const { return memory_; }
  /// What a transport keeps about this memory, as its registration with a network card: `make` is called when `keeper`
  /// first asks, and what it made ends with the table, before the memory does. Any thread.
  void* kept_for(const void* keeper, const std::function<std::shared_ptr<void>()>& make);
  /// Makes the device that has the memory current in the calling thread, which libraries that are handed memory of a
  /// GPU take for granted. Any thread.
  virtual void make_current() {}
  /// Copies between tables of one process, or between one and host memory, also where only a device can, and returns
  /// when done. Any thread.
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
  MemorySpace space_;
  std::shared_ptr<std::byte> memory_;
  std::size_t bytes_;
  std::vector<Part> parts_;
  std::vector<Where> where_;
  std::mutex kept_mutex_;  // guards kept_
  std::vector<Kept> kept_;
};

/// Bytes of a program's memory: its slots one after the other, each on a 64-byte boundary.
std::size_t slots_bytes(const RankProgram& program);

/// "rank 2, step 5, near lane": how errors name where they happened.
std::string place_of(Rank rank, const Step& step);
/// as_error(cause) with the place in front.
Error error_at(Rank rank, const Step& step, const std::exception_ptr& cause);

/// A rank's program on a device: its memory, and what the device prepared for it. The device, the outline and the
/// program must outlive it. A run is load(), the program's compute steps and store(). Runs of one program follow each
/// other: the next begins when what store() returned has completed, or on a device with a queue() as soon as store()
/// has returned. Those of several programs may overlap, from different threads.
class DeviceProgram : public BufferTable {
 public:
  using BufferTable::BufferTable;
  /// Packs this rank's inputs into its own buffers; backward also computes delta = rowsum(dO ∘ O). The first step of
  /// each lane is submitted after what this returns. Steps may read and write the tensors themselves instead, so that
  /// they must stay as they are until store() has completed.
  virtual Event load(const Bindings& bindings) = 0;
  /// Starts a compute step only after every event in `after`; may block the calling thread to ensure it. Steps are
  /// submitted in order, one at a time, though not always from the same thread. A failure is stored in the event and
  /// names rank and step.
  virtual Event submit(const Step& step, std::span<const Event> after) = 0;
  /// Once all of `steps`, the program's in order, have ended: unpacks this rank's results into the tensors that load()
  /// was given; gradients of key heads that groups share are summed in group order.
  /// A failure of either is thrown, or stored in the event. Nothing of theirs touches the tensors any more when they
  /// have thrown, or wait() on what they returned has returned or thrown.
  virtual Event store(const Bindings& bindings, std::span<const Event> steps) = 0;
};

class Transport;

/// A kernel of a device that has several for the same tiles.
struct KernelVariant {
  std::string part;   ///< of a pass: kernels of one part are in each other's place
  std::string name;   ///< for GpuOptions::variant
  bool used = false;  ///< unless another is named
};

/// Where a device's work stands until it is done: nowhere, since load(), submit() and store() do it; or in a queue, to
/// which they append it, of the device's own or that its caller appends to too.
enum class WorkQueue : std::uint8_t { none, own, callers };

/// What computes the steps of programs. Called by one thread at a time, except abort().
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  virtual MemorySpace space() const = 0;
  /// Whether tensors that it is given may lie there: in its own memory, or on the host.
  virtual bool takes(MemorySpace tensors) const { return tensors == space() || tensors == MemorySpace::host; }
  /// The features that its kernels have in that pass. A problem that needs another one is refused.
  virtual Features features(Pass pass) const = 0;
  /// Why this device cannot compute `problem`, naming what it can; empty if it can. It can if it has all
  /// features that the problem needs and raises no objection.
  std::string why_not(const Problem& problem, Pass pass) const;
  /// Kernels among which this device has a choice for tiles of `pass`; empty where it has none.
  virtual std::vector<KernelVariant> variants(const Problem& problem, Pass pass) const {
    static_cast<void>(problem), static_cast<void>(pass);
    return {};
  }
  virtual WorkQueue queue() const { return WorkQueue::none; }
  /// Lets what is appended to the queue from here on begin after `event`, without waiting for it here. False where the
  /// device cannot.
  virtual bool follow(const Event& event) {
    static_cast<void>(event);
    return false;
  }
  /// Queries that an attention kernel takes at a time, as TileCosts::block; 1 where it is not known.
  virtual int query_block() const { return 1; }
  /// Queries of a tile at most whose heads read keys together, as FewQueries::queries.
  virtual int few_queries() const { return 0; }
  /// Memory of space() for a caller's tensors, on a boundary of 64 bytes, not cleared. The device must outlive it.
  /// Throws Error(environment) where there is not enough.
  virtual std::shared_ptr<std::byte> allocate_tensor(std::size_t bytes);
  /// Copies between that memory and the host's, or within either; returns when done. Not during a run.
  virtual void copy(std::byte* into, const std::byte* from, std::size_t bytes);
  /// A program of `rank`, made ready before its first run; both arguments must outlive it, as the device must.
  virtual std::unique_ptr<DeviceProgram> allocate(const Outline& outline, const RankProgram& program, Rank rank) = 0;
  /// Ends all work of all programs with `error`: every pending event completes with it, kernels look once per tile. The
  /// device is of no use any more. Any thread.
  virtual void abort(const Error& error) noexcept = 0;
  /// Of the passes that use this device, whatever handles they are of.
  PassOrder& order() { return order_; }
  /// A transport for this device's memory over one that reaches host memory alone, which must outlive it; null where
  /// there is none.
  virtual std::unique_ptr<Transport> staged(Transport& over) {
    static_cast<void>(over);
    return nullptr;
  }

 protected:
  /// Any other reason not to compute a problem, as its sizes; or a better text for a missing feature.
  virtual std::string objection(const Problem& problem, Pass pass) const {
    static_cast<void>(problem), static_cast<void>(pass);
    return "";
  }

 private:
  PassOrder order_;
};

/// Carries the messages of one run at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  /// Whether it can send from and receive into that memory.
  virtual bool reaches(MemorySpace space) const = 0;
  /// Makes ready what this transport keeps for the table's memory, as its registration with a network card, which may
  /// take longer than a step. The executor calls it once for a program that exchanges anything; a step does it for a
  /// table that nobody prepared.
  virtual void prepare(BufferTable& buffers) { static_cast<void>(buffers); }
  /// Starts an exchange only after every event in `after`; may block the calling lane to ensure it. Steps of one lane
  /// are submitted in order, one at a time, though not always from the same thread; steps of two lanes perhaps at once,
  /// from different threads. A failure is stored in the event and names rank and step.
  virtual Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) = 0;
  /// Ends all exchanges with `error`: every pending event completes with it. The transport is of no use any more. Any
  /// thread.
  virtual void abort(const Error& error) noexcept = 0;
  /// Told by the executor, for heartbeats: the compute lane has begun a step, or waits for another lane.
  virtual void computing(int number) noexcept { static_cast<void>(number); }
  virtual void resting() noexcept {}
  /// `listener` is called, at once and on any thread, when another rank's failure has ended all exchanges; null:
  /// nobody. Returns when no call of an earlier listener is under way. A transport that learns of failures in submit()
  /// alone calls nobody.
  virtual void on_failure(std::function<void(const Error&)> listener) { static_cast<void>(listener); }
  /// Of the passes that use this transport, whatever handles they are of.
  virtual PassOrder& order() { return order_; }

 private:
  PassOrder order_;
};

/// A transport over another one, to which it passes on whatever a derived class does not do otherwise. (A test of the
/// house sees to it that nothing is forgotten.)
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

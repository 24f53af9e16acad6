#include "distattn/execute.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "core/src/run/bindings.hpp"
#include "core/src/run/pass_record.hpp"
#include "core/src/schedule/hazards.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/thread.hpp"

namespace distattn {

using Clock = Event::Clock;

namespace {

constexpr std::array exchange_lanes{Lane::near, Lane::far};

}  // namespace

/// The caller's thread is the compute lane. Each lane of exchanges that the program has gets a thread for those that
/// overlap; an exchange that nobody has begun when the caller's thread comes to wait for it, that thread runs itself:
/// a rank that only waits for others then sleeps and wakes once for a message, not once a lane.
struct Executor::State {
  State(const Outline& outline, const RankProgram& rank_program, Rank own_rank, Device& on, Transport& over);
  ~State();
  void end_lanes();

  const Timeline& run(const Bindings& bindings, const Event& after, const std::function<void()>& queued);
  bool can_submit(const Bindings& bindings) const;
  Event submit(const Bindings& bindings);
  void finish(PassRecord& pass) noexcept;

  class Listening;
  class Submitted;

  void compute(const Bindings& bindings, const Event& after, const std::function<void()>& queued) noexcept;
  void serve(Lane lane);
  bool reach(const LaneClock& needed) noexcept;
  void run_next(Lane lane, std::unique_lock<std::mutex>& lock) noexcept;
  bool submitted(Lane lane, const LaneClock& needed) const;
  bool submitted(const LaneClock& needed) const;
  bool is_ready(Lane lane) const;
  void wake_ready();
  void run_step(std::size_t number);
  void release_tensors(const PassRecord& ended) noexcept;
  void fail(const std::exception_ptr& error) noexcept;
  template <class Action>
  void guarded(Action action) noexcept;
  void begin();
  void throw_failure();

  const RankProgram& program;
  const Rank rank;
  Device& device;
  std::unique_ptr<DeviceProgram> buffers;
  const std::unique_ptr<Transport> staged;  // where the caller's does not reach the device's memory
  Transport& transport;
  std::array<std::vector<std::size_t>, lane_count> steps_of;
  std::vector<LaneClock> needs;                         // by step: what is to be submitted before it
  LaneClock whole = not_begun;                          // the program
  std::array<std::vector<Event>, lane_count> after_of;  // each lane's own, reserved once

  std::mutex mutex;  // guards all up to `threads`
  std::array<std::condition_variable, lane_count> woken;
  std::array<std::size_t, lane_count> next{};  // in steps_of; all are over between runs
  std::array<bool, lane_count> taken{};        // a thread runs the next step
  const LaneClock* awaited = nullptr;          // what the caller's thread sleeps for
  std::exception_ptr failure;
  bool closing = false;

  std::vector<std::thread> threads;
  PassRecord own;           // of every run() that waits
  PassRecord* pass = &own;  // whose steps are being submitted
  Timeline timeline;
};

Executor::State::State(const Outline& outline, const RankProgram& rank_program, Rank own_rank, Device& on,
                       Transport& over)
    : program(rank_program),
      rank(own_rank),
      device(on),
      staged(over.reaches(on.space()) ? nullptr : on.staged(over)),
      transport(staged ? *staged : over),
      own(rank_program.steps.size()) {
  if (const std::string why = device.why_not(outline.sharding.problem, outline.pass); !why.empty()) refuse(why);
  if (!transport.reaches(device.space())) {
    refuse(
        fmt::format("transport {} cannot carry data of backend {} (it does not reach that memory): choose another "
                    "transport",
                    transport.name(), device.name()));
  }
  buffers = device.allocate(outline, program, rank);

  const std::size_t count = program.steps.size();
  LaneClocks clocks;
  needs.reserve(count);
  for (std::size_t number = 0; number < count; ++number) {
    const Step& step = program.steps[number];
    needs.push_back(clocks.append(step));
    const std::size_t lane = index(step.lane);
    steps_of[lane].push_back(number);
    whole[lane] = static_cast<std::int32_t>(number);
    after_of[lane].reserve(std::max(after_of[lane].capacity(), step.after.size() + 1));
  }
  for (std::size_t lane = 0; lane < lane_count; ++lane) next[lane] = steps_of[lane].size();
  if (steps_of[index(Lane::compute)].size() < count) transport.prepare(*buffers);
  timeline.spans.reserve(count);
  try {
    for (const Lane lane : exchange_lanes) {
      if (!steps_of[index(lane)].empty()) threads.emplace_back([this, lane] { serve(lane); });
    }
  } catch (const std::system_error& refused) {
    end_lanes();
    throw no_thread(fmt::format("rank {}", rank), "exchange messages", refused);
  }
}

Executor::State::~State() { end_lanes(); }

void Executor::State::end_lanes() {
  {
    const std::scoped_lock lock(mutex);
    closing = true;
  }
  for (std::condition_variable& sleeper : woken) sleeper.notify_one();
  for (std::thread& thread : threads) thread.join();
}

/// The caller's thread, until nothing of the run is under way any more.
void Executor::State::compute(const Bindings& bindings, const Event& after,
                              const std::function<void()>& queued) noexcept {
  guarded([&] {
    await_what_precedes(after, rank);
    pass->loaded = buffers->load(bindings);
    begin();
  });
  for (const std::size_t number : steps_of[index(Lane::compute)]) {
    if (!reach(needs[number])) break;
    transport.computing(program.steps[number].number);
    std::unique_lock lock(mutex);
    run_next(Lane::compute, lock);
  }
  if (reach(whole)) {
    guarded([&] {
      pass->stored = buffers->store(bindings, pass->events);
      if (queued) queued();
      pass->await_steps();
    });
  }
  {
    std::unique_lock lock(mutex);
    woken[index(Lane::compute)].wait(lock, [&] { return std::none_of(taken.begin(), taken.end(), std::identity()); });
  }
  release_tensors(*pass);
}

/// A lane's own thread.
void Executor::State::serve(Lane lane) {
  leave_openmp_place();
  std::unique_lock lock(mutex);
  for (;;) {
    woken[index(lane)].wait(lock, [&] { return closing || is_ready(lane); });
    if (closing) return;
    run_next(lane, lock);
    wake_ready();
    // Not before it can go on: a thread that wakes for nothing takes a core from those that compute.
    if (failure || (awaited != nullptr && submitted(*awaited))) woken[index(Lane::compute)].notify_one();
  }
}

/// By the caller's thread: returns when `needed` is submitted; false when a lane has failed, and nothing more is to be.
bool Executor::State::reach(const LaneClock& needed) noexcept {
  transport.resting();
  std::unique_lock lock(mutex);
  const auto over = [&] { return failure || submitted(needed); };
  while (!over()) {
    const auto lane = std::find_if(exchange_lanes.begin(), exchange_lanes.end(),
                                   [&](Lane l) { return !submitted(l, needed) && is_ready(l); });
    if (lane != exchange_lanes.end()) {
      run_next(*lane, lock);
    } else {
      wake_ready();
      awaited = &needed;
      woken[index(Lane::compute)].wait(lock, over);
      awaited = nullptr;
    }
  }
  return !failure;
}

/// Runs a lane's next step without the lock, and other lanes' that are ready beside it.
void Executor::State::run_next(Lane lane, std::unique_lock<std::mutex>& lock) noexcept {
  const std::size_t number = steps_of[index(lane)][next[index(lane)]];
  taken[index(lane)] = true;
  wake_ready();
  lock.unlock();
  try {
    run_step(number);
  } catch (...) {
    fail(std::current_exception());
  }
  lock.lock();
  taken[index(lane)] = false;
  ++next[index(lane)];
}

/// As far as that needs this lane.
bool Executor::State::submitted(Lane lane, const LaneClock& needed) const {
  const std::vector<std::size_t>& steps = steps_of[index(lane)];
  const std::size_t ahead = next[index(lane)];
  return ahead == steps.size() || static_cast<std::int32_t>(steps[ahead]) > needed[index(lane)];
}

bool Executor::State::submitted(const LaneClock& needed) const {
  return submitted(Lane::compute, needed) && submitted(Lane::near, needed) && submitted(Lane::far, needed);
}

bool Executor::State::is_ready(Lane lane) const {
  const std::size_t l = index(lane);
  return !failure && !taken[l] && next[l] < steps_of[l].size() && submitted(needs[steps_of[l][next[l]]]);
}

/// The threads of lanes that can go on.
void Executor::State::wake_ready() {
  for (const Lane lane : exchange_lanes) {
    if (is_ready(lane)) woken[index(lane)].notify_one();
  }
}

/// By whichever thread, when everything before it is submitted.
void Executor::State::run_step(std::size_t number) {
  const Step& step = program.steps[number];
  std::vector<Event>& after = after_of[index(step.lane)];
  after.clear();
  if (number == steps_of[index(step.lane)].front()) after.push_back(pass->loaded);
  for (const StepId id : step.after) after.push_back(pass->events[index(id)]);

  pass->started[number] = Clock::now();
  Event event = step.lane == Lane::compute ? buffers->submit(step, after) : transport.submit(step, *buffers, after);
  pass->ended[number] = Clock::now();
  if (event.done()) event.wait();
  pass->events[number] = std::move(event);
}

/// The caller's tensors are left alone when this returns, however the run went.
void Executor::State::release_tensors(const PassRecord& ended) noexcept {
  for (const Event* event : {&ended.loaded, &ended.stored}) {
    guarded([&] { event->wait(); });
  }
}

void Executor::State::fail(const std::exception_ptr& error) noexcept {
  {
    const std::scoped_lock lock(mutex);
    if (failure) return;
    failure = error;
  }
  for (std::condition_variable& sleeper : woken) sleeper.notify_one();
  const Error reason = as_error(error);
  device.abort(reason);
  transport.abort(reason);
}

/// Lanes may go on from here.
void Executor::State::begin() {
  const std::scoped_lock lock(mutex);
  next.fill(0);
}

void Executor::State::throw_failure() {
  const std::scoped_lock lock(mutex);
  if (failure) std::rethrow_exception(failure);
}

/// Runs `action` on the caller's thread; the other ranks learn of a failure at once and do not wait for this one.
template <class Action>
void Executor::State::guarded(Action action) noexcept {
  try {
    action();
  } catch (...) {
    fail(std::current_exception());
  }
}

/// While a run lasts, the failure of another rank stops this one's kernels too.
class Executor::State::Listening {
 public:
  explicit Listening(State& state) : transport_(state.transport) {
    transport_.on_failure([&state](const Error& error) { state.fail(std::make_exception_ptr(error)); });
  }
  ~Listening() {
    transport_.on_failure(nullptr);
    transport_.computing(-1);
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  Transport& transport_;
};

const Timeline& Executor::State::run(const Bindings& bindings, const Event& after,
                                     const std::function<void()>& queued) {
  const Clock::time_point start = Clock::now();
  throw_failure();
  distattn::check(bindings, buffers->outline(), rank, device);
  const Listening listening(*this);
  pass->begin(start);
  compute(bindings, after, queued);
  throw_failure();
  pass->measure(program, rank, timeline);
  return timeline;
}

bool Executor::State::can_submit(const Bindings& bindings) const {
  const bool alone = transport.size() == 1 && threads.empty();
  return alone && device.queue() != WorkQueue::none && lie_in(device.space(), bindings);
}

/// A pass in the device's queue. Its user sees to it that nobody else uses it, nor after the executor.
class Executor::State::Submitted final : public Event::State {
 public:
  Submitted(Executor::State& state, std::unique_ptr<PassRecord> pass) : state_(state), pass_(std::move(pass)) {}

  bool done() const override { return over_ || pass_->done(); }
  void wait() const override {
    if (!std::exchange(over_, true)) {
      state_.finish(*pass_);
      ended_at_ = Clock::now();
    }
    state_.throw_failure();
  }
  Clock::time_point ended_at() const override { return ended_at_; }
  Event queued() const override { return pass_->stored; }

 private:
  Executor::State& state_;
  const std::unique_ptr<PassRecord> pass_;
  mutable bool over_ = false;
  mutable Clock::time_point ended_at_{};
};

Event Executor::State::submit(const Bindings& bindings) {
  throw_failure();
  auto record = std::make_unique<PassRecord>(program.steps.size());
  record->begin(Clock::now());
  pass = record.get();
  guarded([&] {
    pass->loaded = buffers->load(bindings);
    for (std::size_t number = 0; number < program.steps.size(); ++number) run_step(number);
    pass->stored = buffers->store(bindings, pass->events);
  });
  pass = &own;
  return Event(std::make_shared<Submitted>(*this, std::move(record)));
}

void Executor::State::finish(PassRecord& submitted) noexcept {
  guarded([&] { submitted.await_steps(); });
  release_tensors(submitted);
  guarded([&] {
    throw_failure();
    submitted.measure(program, rank, timeline);
  });
}

Executor::Executor(const Outline& outline, const RankProgram& program, Rank rank, Device& device, Transport& transport)
    : state_(std::make_unique<State>(outline, program, rank, device, transport)) {}
Executor::~Executor() = default;
const Timeline& Executor::run(const Bindings& bindings, const Event& after, const std::function<void()>& queued) {
  return state_->run(bindings, after, queued);
}
void Executor::check(const Bindings& bindings) const {
  distattn::check(bindings, state_->buffers->outline(), state_->rank, state_->device);
}
bool Executor::can_submit(const Bindings& bindings) const { return state_->can_submit(bindings); }
Event Executor::submit(const Bindings& bindings) { return state_->submit(bindings); }
const Timeline& Executor::timeline() const { return state_->timeline; }
const BufferTable& Executor::buffers() const { return *state_->buffers; }

}  // namespace distattn

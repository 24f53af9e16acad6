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
#include "core/src/schedule/hazards.hpp"
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

  const Timeline& run(const Bindings& bindings);

  class Listening;

  void compute(const Bindings& bindings) noexcept;
  void serve(Lane lane);
  bool reach(const LaneClock& needed) noexcept;
  void run_next(Lane lane, std::unique_lock<std::mutex>& lock) noexcept;
  bool submitted(Lane lane, const LaneClock& needed) const;
  bool submitted(const LaneClock& needed) const;
  bool is_ready(Lane lane) const;
  void wake_ready();
  void run_step(std::size_t number);
  void release_tensors() noexcept;
  void fail(std::exception_ptr error) noexcept;
  template <class Action>
  void guarded(Action action) noexcept;
  void begin();
  void throw_failure();
  void measure(Clock::time_point begin);

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
  Event loaded, stored;  // the work of this run with the caller's tensors
  // By step; written by the thread that runs it, read by others once it is submitted.
  std::vector<Event> events;
  std::vector<Clock::time_point> started, ended;
  Timeline timeline;
};

Executor::State::State(const Outline& outline, const RankProgram& rank_program, Rank own_rank, Device& on,
                       Transport& over)
    : program(rank_program),
      rank(own_rank),
      device(on),
      staged(over.reaches(on.space()) ? nullptr : on.staged(over)),
      transport(staged ? *staged : over) {
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
  events.resize(count);
  started.resize(count);
  ended.resize(count);
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
void Executor::State::compute(const Bindings& bindings) noexcept {
  loaded = stored = Event();
  guarded([&] {
    loaded = buffers->load(bindings);
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
      stored = buffers->store(bindings, events);
      // In the order of steps, so that the first that does not end is one that nothing before it holds up.
      for (const Event& event : events) event.wait();
    });
  }
  {
    std::unique_lock lock(mutex);
    woken[index(Lane::compute)].wait(lock, [&] { return std::none_of(taken.begin(), taken.end(), std::identity()); });
  }
  release_tensors();
}

/// A lane's own thread.
void Executor::State::serve(Lane lane) {
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
  if (number == steps_of[index(step.lane)].front()) after.push_back(loaded);
  for (const StepId id : step.after) after.push_back(events[index(id)]);

  started[number] = Clock::now();
  Event event = step.lane == Lane::compute ? buffers->submit(step, after) : transport.submit(step, *buffers, after);
  ended[number] = Clock::now();
  if (event.done()) event.wait();
  events[number] = std::move(event);
}

/// The caller's tensors are left alone when this returns, however the run went.
void Executor::State::release_tensors() noexcept {
  for (const Event* event : {&loaded, &stored}) {
    guarded([&] { event->wait(); });
  }
}

void Executor::State::fail(std::exception_ptr error) noexcept {
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
  std::fill(events.begin(), events.end(), Event());
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

const Timeline& Executor::State::run(const Bindings& bindings) {
  const Clock::time_point start = Clock::now();
  throw_failure();
  check(bindings, buffers->outline(), rank, device);
  const Listening listening(*this);
  compute(bindings);
  throw_failure();
  measure(start);
  return timeline;
}

/// A step that was submitted before what it waits for had ended, began when that had.
void Executor::State::measure(Clock::time_point begin) {
  const auto seconds = [&](Clock::time_point at) { return std::chrono::duration<double>(at - begin).count(); };
  timeline.spans.clear();
  const Clock::time_point first = loaded.state() != nullptr ? loaded.state()->ended_at() : begin;
  std::array<Clock::time_point, lane_count> lane_free{first, first, first};
  for (std::size_t number = 0; number < program.steps.size(); ++number) {
    const Step& step = program.steps[number];
    if (events[number].state() != nullptr) ended[number] = events[number].state()->ended_at();
    Clock::time_point start = std::max(started[number], lane_free[index(step.lane)]);
    for (const StepId id : step.after) start = std::max(start, ended[index(id)]);
    start = std::min(start, ended[number]);
    lane_free[index(step.lane)] = ended[number];
    timeline.spans.push_back(
        {rank, step.lane, static_cast<StepId>(number), step.number, seconds(start), seconds(ended[number])});
  }
  std::sort(timeline.spans.begin(), timeline.spans.end(),
            [](const Span& a, const Span& b) { return a.start_s < b.start_s; });
  timeline.seconds = seconds(Clock::now());
}

Executor::Executor(const Outline& outline, const RankProgram& program, Rank rank, Device& device, Transport& transport)
    : state_(std::make_unique<State>(outline, program, rank, device, transport)) {}
Executor::~Executor() = default;
const Timeline& Executor::run(const Bindings& bindings) { return state_->run(bindings); }
const BufferTable& Executor::buffers() const { return *state_->buffers; }

}  // namespace distattn

#include "distattn/execute.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "core/src/run/bindings.hpp"

namespace distattn {

using Clock = Event::Clock;

/// The caller's thread is the compute lane; the lanes of exchanges that the program has get a thread each.
struct Executor::State {
  State(const Outline& outline, const RankProgram& rank_program, Rank own_rank, Device& on, Transport& over);
  ~State();
  void end_lanes();

  const Timeline& run(const Bindings& bindings);

  class Listening;

  void serve(Lane lane);
  void run_lane(Lane lane) noexcept;
  void run_step(std::size_t step);
  bool wait_for_submission_of(const Step& step, std::vector<Event>& events);
  bool all_submitted(const std::vector<StepId>& steps) const;
  void fail(std::exception_ptr error) noexcept;
  template <class Action>
  void guarded(Action action);
  void begin();
  void wake_lanes();
  void join_lanes() noexcept;
  void throw_failure();
  void measure(Clock::time_point begin);

  const RankProgram& program;
  const Rank rank;
  Device& device;
  std::unique_ptr<BufferTable> buffers;
  const std::unique_ptr<Transport> staged;  // where the caller's does not reach the device's memory
  Transport& transport;
  std::array<std::vector<std::size_t>, lane_count> steps_of;
  std::array<std::vector<Event>, lane_count> after_of;  // each lane's own, reserved once

  /// What a lane's thread sleeps for, one at a time.
  struct Sleeper {
    std::condition_variable woken;
    const std::vector<StepId>* until_submitted = nullptr;
  };

  std::mutex mutex;  // guards all up to `threads`
  std::array<Sleeper, lane_count> sleepers;
  std::vector<Event> events;    // by step
  std::vector<char> submitted;  // by step
  std::exception_ptr failure;
  std::uint64_t generation = 0;  // counts runs: a lane thread waits for the next
  int lanes_running = 0;
  bool closing = false;

  std::vector<std::thread> threads;
  std::vector<Clock::time_point> started, ended;  // by step; written by its lane, read when all lanes have ended
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
        fmt::format("transport {} cannot carry data of backend {} (it does not reach that memory) choose another "
                    "with --transport",
                    transport.name(), device.name()));
  }
  buffers = device.allocate(outline, program, rank);

  const std::size_t count = program.steps.size();
  for (std::size_t step = 0; step < count; ++step) {
    const std::size_t lane = index(program.steps[step].lane);
    steps_of[lane].push_back(step);
    after_of[lane].reserve(std::max(after_of[lane].capacity(), program.steps[step].after.size()));
  }
  events.resize(count);
  submitted.resize(count);
  started.resize(count);
  ended.resize(count);
  timeline.spans.reserve(count);
  try {
    for (const Lane lane : {Lane::near, Lane::far}) {
      if (!steps_of[index(lane)].empty()) threads.emplace_back([this, lane] { serve(lane); });
    }
  } catch (const std::system_error& refused) {
    end_lanes();
    throw Error(ErrorKind::environment,
                fmt::format("rank {} gets no thread to exchange messages ({}) use fewer ranks or threads", rank,
                            refused.what()));
  }
}

Executor::State::~State() { end_lanes(); }

void Executor::State::end_lanes() {
  {
    const std::scoped_lock lock(mutex);
    closing = true;
  }
  for (Sleeper& sleeper : sleepers) sleeper.woken.notify_one();
  for (std::thread& thread : threads) thread.join();
}

void Executor::State::serve(Lane lane) {
  for (std::uint64_t served = 0;; ++served) {
    {
      std::unique_lock lock(mutex);
      sleepers[index(lane)].woken.wait(lock, [&] { return closing || generation > served; });
      if (closing) return;
    }
    run_lane(lane);
    bool last = false;
    {
      const std::scoped_lock lock(mutex);
      last = --lanes_running == 0;
    }
    if (last) sleepers[index(Lane::compute)].woken.notify_one();
  }
}

void Executor::State::run_lane(Lane lane) noexcept {
  try {
    for (const std::size_t step : steps_of[index(lane)]) run_step(step);
    for (const std::size_t step : steps_of[index(lane)]) {
      events[step].wait();
      if (events[step].state() != nullptr) ended[step] = events[step].state()->ended_at();
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

void Executor::State::run_step(std::size_t number) {
  const Step& step = program.steps[number];
  std::vector<Event>& after = after_of[index(step.lane)];
  if (step.lane == Lane::compute) transport.resting();
  if (!wait_for_submission_of(step, after)) return;

  if (step.lane == Lane::compute) transport.computing(step.number);
  started[number] = Clock::now();
  Engine& engine = step.lane == Lane::compute ? static_cast<Engine&>(device) : transport;
  Event event = engine.submit(step, *buffers, after);
  ended[number] = Clock::now();
  if (event.done()) event.wait();

  std::array<bool, lane_count> ready{};
  {
    const std::scoped_lock lock(mutex);
    events[number] = std::move(event);
    submitted[number] = 1;
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      const std::vector<StepId>* const steps = sleepers[lane].until_submitted;
      ready[lane] = steps != nullptr && all_submitted(*steps);
    }
  }
  // No others, and none before it can go on: a thread that wakes for nothing takes a core from those that compute.
  for (std::size_t lane = 0; lane < lane_count; ++lane) {
    if (ready[lane]) sleepers[lane].woken.notify_one();
  }
}

bool Executor::State::all_submitted(const std::vector<StepId>& steps) const {
  return std::all_of(steps.begin(), steps.end(), [&](StepId id) { return submitted[index(id)]; });
}

/// False when another lane has failed: nothing more is to be submitted.
bool Executor::State::wait_for_submission_of(const Step& step, std::vector<Event>& after) {
  Sleeper& mine = sleepers[index(step.lane)];
  std::unique_lock lock(mutex);
  mine.until_submitted = &step.after;
  mine.woken.wait(lock, [&] { return failure || all_submitted(step.after); });
  mine.until_submitted = nullptr;
  after.clear();
  for (const StepId id : step.after) after.push_back(events[index(id)]);
  return failure == nullptr;
}

void Executor::State::fail(std::exception_ptr error) noexcept {
  {
    const std::scoped_lock lock(mutex);
    if (failure) return;
    failure = error;
  }
  for (Sleeper& sleeper : sleepers) sleeper.woken.notify_one();
  const Error reason = as_error(error);
  device.abort(reason);
  transport.abort(reason);
}

void Executor::State::begin() {
  throw_failure();
  const std::scoped_lock lock(mutex);
  std::fill(submitted.begin(), submitted.end(), 0);
  std::fill(events.begin(), events.end(), Event());
}

void Executor::State::wake_lanes() {
  {
    const std::scoped_lock lock(mutex);
    lanes_running = static_cast<int>(threads.size());
    ++generation;
  }
  for (const Lane lane : {Lane::near, Lane::far}) sleepers[index(lane)].woken.notify_one();
}

void Executor::State::join_lanes() noexcept {
  transport.resting();
  std::unique_lock lock(mutex);
  sleepers[index(Lane::compute)].woken.wait(lock, [&] { return lanes_running == 0; });
}

void Executor::State::throw_failure() {
  const std::scoped_lock lock(mutex);
  if (failure) std::rethrow_exception(failure);
}

/// Runs `action` on the caller's thread; the other ranks learn of a failure at once and do not wait for this one.
template <class Action>
void Executor::State::guarded(Action action) {
  try {
    action();
  } catch (...) {
    fail(std::current_exception());
    throw;
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
  begin();
  check(bindings, buffers->outline(), rank);
  const Listening listening(*this);
  guarded([&] { device.load(bindings, *buffers); });
  wake_lanes();
  run_lane(Lane::compute);
  join_lanes();
  throw_failure();
  guarded([&] { device.store(*buffers, bindings); });
  measure(start);
  return timeline;
}

/// A step that was submitted before what it waits for had ended, began when that had.
void Executor::State::measure(Clock::time_point begin) {
  const auto seconds = [&](Clock::time_point at) { return std::chrono::duration<double>(at - begin).count(); };
  timeline.spans.clear();
  std::array<Clock::time_point, lane_count> lane_free{begin, begin, begin};
  for (std::size_t number = 0; number < program.steps.size(); ++number) {
    const Step& step = program.steps[number];
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

#include "cli/terminal/interruption.hpp"

#include <fmt/format.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "cli/exit_code.hpp"
#include "cli/terminal/console.hpp"
#include "cli/terminal/standard_streams.hpp"
#include "cli/tools/arrays.hpp"
#include "distattn/files.hpp"
#include "distattn/thread.hpp"

namespace distattn::cli {
namespace {

// Those that end a process unless it says otherwise. Batch systems warn with any of them, as they are told to.
constexpr int endings[] = {SIGINT,  SIGTERM,   SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2,  SIGXCPU,
                           SIGALRM, SIGVTALRM, SIGPROF, SIGIO,   SIGPWR,  SIGSTKFLT};
constexpr int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};

/// Why the process ends: what the first signal said.
struct Ending {
  std::atomic<int> signal{0};
  std::atomic<const char*> lost_file{nullptr};  // of a fault: the mapped file that is shorter than it was
  std::atomic<const Error*> gone{nullptr};      // instead of a signal: whom this process lived for
  std::atomic<bool> removed{false};
};

struct Actions {
  std::mutex mutex;
  std::list<AtInterruption::Action> list;
};

Actions& actions() {
  // Never destroyed: the watching thread outlives main's statics.
  static auto* const instance = new Actions;
  return *instance;
}

sem_t came;
Ending ending;
struct sigaction without_us[NSIG];  // what faults did before: a sanitizer's or a library's report, or nothing

bool begin_to_end(int signal) {
  int none = 0;
  return ending.signal.compare_exchange_strong(none, signal);
}

/// Runs on whichever thread the system picks: libraries start theirs before main, which block no signal.
void tell(int signal) {
  if (begin_to_end(signal)) ::sem_post(&came);
}

void pause_ms(long milliseconds) {
  const timespec pause{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
  ::nanosleep(&pause, nullptr);
}

/// On the thread whose fault it is, which may hold any lock: the files go on the other, if that gets what it needs.
void tell_fault(int signal, siginfo_t* info, void* /*context*/) {
  if (begin_to_end(signal)) {
    if (signal == SIGBUS) ending.lost_file = mapped_file_at(info->si_addr);
    ::sem_post(&came);
  }
  constexpr int waits = 200;
  for (int i = 0; i < waits && !ending.removed; ++i) pause_ms(10);
  while (ending.lost_file != nullptr) pause_ms(1000);
  ::sigaction(signal, &without_us[signal], nullptr);
  if (info->si_code <= 0) ::raise(signal);  // somebody sent it; what the processor found, it finds again
}

/// What an ended run says.
Error reason(int signal) {
  if (const Error* const gone = ending.gone) return *gone;
  if (const char* const file = ending.lost_file) {
    return {ErrorKind::environment,
            fmt::format("cannot read {} (it became shorter while it was read): leave it as it is until the end", file)};
  }
  if (signal == SIGXCPU) {
    return {ErrorKind::environment, "ended (the limit of CPU time is reached): raise it, as ulimit -t does"};
  }
  const char* const name = ::sigabbrev_np(signal);
  const std::string what = name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
  if (std::find(std::begin(faults), std::end(faults), signal) != std::end(faults)) {
    return {ErrorKind::environment,
            fmt::format("ended by {} (a fault of the program or of a library): report it", what)};
  }
  return {ErrorKind::interrupted, fmt::format("interrupted (by {}): nothing unfinished is left", what)};
}

/// What waits too long for a lock is left to those who find it later.
void end_in_time(int code) {
  static int late_code;
  late_code = code;
  ::signal(SIGALRM, [](int) { ::_exit(late_code); });
  ::alarm(10);
}

void wait_and_end() {
  while (::sem_wait(&came) != 0) {
  }
  const int signal = ending.signal;
  const Error error = reason(signal);
  end_in_time(exit_code(error.kind()));
  // Both held to the end: who is about to make or complete a file, or learns of the interruption from an action and
  // does not get past its own AtInterruption, waits for that.
  const std::lock_guard lock(actions().mutex);
  const auto files = remove_temporary_files();
  print_error(error.what());  // before the actions: a thread with a fault may hold what they wait for
  for (const auto& action : actions().list) action(error);
  const bool faulty = error.kind() == ErrorKind::environment && signal != SIGXCPU && ending.lost_file == nullptr &&
                      ending.gone == nullptr;
  ending.removed = true;
  if (faulty) pause_ms(5000);  // that thread ends the process, as the fault does
  ::_exit(exit_code(error.kind()));
}

/// A limit that is soft and hard alike kills without a warning: this is one, shortly before.
void warn_before_hard_cpu_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_max == RLIM_INFINITY || limit.rlim_cur < limit.rlim_max)
    return;
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGXCPU;
  timer_t timer{};
  if (::timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) != 0) return;
  const double most_s = static_cast<double>(limit.rlim_max), warned_s = most_s - std::min(1.0, 0.2 * most_s);
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(warned_s);
  when.it_value.tv_nsec = static_cast<long>((warned_s - static_cast<double>(when.it_value.tv_sec)) * 1e9);
  ::timer_settime(timer, TIMER_ABSTIME, &when, nullptr);
}

}  // namespace

void watch_for_interruption() {
  ::sem_init(&came, 0, 0);
  actions();
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread that waits for itself would wait for ever
  try {
    std::thread(wait_and_end).detach();
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  } catch (const std::system_error& refused) {
    throw no_thread("distattn", "wait for signals", refused);
  }
  struct sigaction ours {};
  ours.sa_handler = tell;
  ours.sa_flags = SA_RESTART;
  const auto take = [&](int signal) {
    struct sigaction current {};
    const bool free = ::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_DFL;
    // A profiler needs the signal that it took.
    if (free && !ignored_by_caller(signal)) ::sigaction(signal, &ours, nullptr);
  };
  for (const int signal : endings) take(signal);
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) take(signal);
  struct sigaction of_faults {};
  of_faults.sa_sigaction = tell_fault;
  of_faults.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (const int signal : faults) ::sigaction(signal, &of_faults, &without_us[signal]);
  warn_before_hard_cpu_limit();
}

void let_interruption_end() {
  if (ending.signal == 0) return;
  while (true) pause_ms(1000);
}

void give_way(int code) {
  static int code_of_ended;
  code_of_ended = code;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::signal(signal, [](int) { ::_exit(code_of_ended); });
  pause_ms(2000);
}

void end_without_launcher(const Error& gone) {
  constexpr int no_signal = -1;
  if (begin_to_end(no_signal)) {
    ending.gone = new Error(gone);  // for as long as the process lives
    ::sem_post(&came);
  }
  while (true) pause_ms(1000);
}

AtInterruption::AtInterruption(Action action) {
  const std::lock_guard lock(actions().mutex);
  place_ = actions().list.insert(actions().list.end(), std::move(action));
}

AtInterruption::~AtInterruption() {
  const std::lock_guard lock(actions().mutex);
  actions().list.erase(place_);
}

}  // namespace distattn::cli

#include "interruption.hpp"

#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "console.hpp"
#include "distattn/io.hpp"
#include "distattn/thread.hpp"

namespace distattn::cli {
namespace {

constexpr int exit_code = 130;

struct Actions {
  std::mutex mutex;
  std::list<std::function<void()>> list;
};

Actions& actions() {
  // Never destroyed: the watching thread outlives main's statics.
  static auto* const instance = new Actions;
  return *instance;
}

sem_t came;

/// Runs on whichever thread the system picks: libraries start theirs before main, which block no signal.
void tell(int) { ::sem_post(&came); }

[[noreturn]] void wait_and_end() {
  while (::sem_wait(&came) != 0) {
  }
  discard_partial_files();
  // Held to the end: who learns of the interruption from an action does not get past its own AtInterruption.
  const std::lock_guard lock(actions().mutex);
  for (const auto& action : actions().list) action();
  print_error(interrupted().what());
  ::_exit(exit_code);
}

}  // namespace

void watch_for_interruption() {
  ::sem_init(&came, 0, 0);
  actions();
  try {
    std::thread(wait_and_end).detach();
  } catch (const std::system_error& refused) {
    throw no_thread("distattn", "wait for signals", refused);
  }
  struct sigaction ours {};
  ours.sa_handler = tell;
  ours.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction current {};
    ::sigaction(signal, nullptr, &current);
    if (current.sa_handler != SIG_IGN) ::sigaction(signal, &ours, nullptr);
  }
}

Error interrupted() { return {ErrorKind::interrupted, "interrupted (by a signal) no file was written"}; }

AtInterruption::AtInterruption(std::function<void()> action) {
  const std::lock_guard lock(actions().mutex);
  place_ = actions().list.insert(actions().list.end(), std::move(action));
}

AtInterruption::~AtInterruption() {
  const std::lock_guard lock(actions().mutex);
  actions().list.erase(place_);
}

}  // namespace distattn::cli

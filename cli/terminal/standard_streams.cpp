#include "cli/terminal/standard_streams.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace distattn::cli {
namespace {

int results = -1;
bool ignored[NSIG] = {};

// Before the constructors of shared libraries, of which some write and some take signals: no code here may rely on one.
__attribute__((no_sanitize("address", "thread", "undefined"))) void hold_early(int, char**, char**) {
  hold_standard_streams();
}
__attribute__((section(".preinit_array"), used)) void (*const early)(int, char**, char**) = hold_early;

}  // namespace

__attribute__((no_sanitize("address", "thread", "undefined"))) void hold_standard_streams() {
  if (results >= 0) return;
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // Takes the lowest number that is free, this one, and is open for what is not done with it.
    static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
  results = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (results >= 0) {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
  } else {
    results = STDOUT_FILENO;  // no descriptor is left, and hardly a library will get far
  }
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    ignored[signal] = ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  }
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
}

int results_descriptor() { return results; }

bool ignored_by_caller(int signal) { return ignored[signal]; }

}  // namespace distattn::cli

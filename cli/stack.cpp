#include "cli/stack.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cstddef>
#include <system_error>
#include <thread>

#include "distattn/error.hpp"

namespace distattn::cli {
namespace {

constexpr std::size_t least_stack = std::size_t{1} << 20;

/// Threads get as much as ulimit -s says when a process starts, unless they ask for something else.
void raise_stack_of_threads() {
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return;
  std::size_t bytes = 0;
  if (::pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < least_stack) {
    ::pthread_attr_setstacksize(&attributes, least_stack);
    ::pthread_setattr_default_np(&attributes);
  }
  ::pthread_attr_destroy(&attributes);
}

/// Whether the main thread's stack may grow that far.
bool main_stack_can_grow() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= least_stack) return true;
  if (limit.rlim_max < least_stack) return false;
  limit.rlim_cur = least_stack;
  return ::setrlimit(RLIMIT_STACK, &limit) == 0;
}

}  // namespace

int with_enough_stack(const std::function<int()>& body) {
  raise_stack_of_threads();
  if (main_stack_can_grow()) return body();
  int result = 0;
  try {
    std::thread([&] { result = body(); }).join();
  } catch (const std::system_error& refused) {
    throw Error(ErrorKind::environment,
                fmt::format("the stack may have less than {} KiB, and there is no other ({}): raise ulimit -s",
                            least_stack >> 10, refused.what()));
  }
  return result;
}

}  // namespace distattn::cli

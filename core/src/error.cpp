#include "distattn/error.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "distattn/host_resources.hpp"
#include "distattn/thread.hpp"

namespace distattn {
namespace {

std::string without_controls(const std::string& message) {
  std::string line;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      line += c;
      continue;
    }
    char spelled[5];
    std::snprintf(spelled, sizeof spelled, "\\x%02x", static_cast<unsigned>(byte));
    line += spelled;
  }
  return line;
}

}  // namespace

Error::Error(ErrorKind kind, const std::string& message) : std::runtime_error(without_controls(message)), kind_(kind) {}

Error as_error(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return {ErrorKind::environment, error.what()};
  } catch (...) {
    return {ErrorKind::environment, "an exception of unknown type"};
  }
}

Error no_thread(const std::string& who, const std::string& purpose, const std::system_error& refused) {
  const std::string what = who + " gets no thread to " + purpose + " (" + refused.what();
  // A thread's stack is the first large piece of memory that most processes ask for.
  constexpr std::int64_t stack_bytes = std::int64_t{8} << 20;
  const HostResources host = host_resources();
  if (host.process_free_bytes < stack_bytes) {
    return {ErrorKind::environment, what + "; ulimit -v or -d leaves " + std::to_string(host.process_free_bytes >> 10) +
                                        " KiB, which is too little for its stack): raise that limit"};
  }
  return {ErrorKind::environment,
          what + "): use fewer ranks or threads, or raise the limit of them, as ulimit -u does"};
}

}  // namespace distattn

namespace distattn::detail {

void expectation_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "distattn: internal error: expected %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace distattn::detail

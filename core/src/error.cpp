#include "distattn/error.hpp"

#include <cstdio>
#include <cstdlib>

#include "distattn/thread.hpp"

namespace distattn {

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
  return {ErrorKind::environment,
          who + " gets no thread to " + purpose + " (" + refused.what() + ") use fewer ranks or threads"};
}

}  // namespace distattn

namespace distattn::detail {

void expectation_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "distattn: internal error: expected %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace distattn::detail

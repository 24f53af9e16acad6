#pragma once
/// Errors: bad input and bad environment are thrown as Error; bugs assert (DISTATTN_EXPECT).

#include <exception>
#include <stdexcept>
#include <string>

#pragma GCC visibility push(default)
namespace distattn {

/// What went wrong, in the classes that the command line turns into exit codes.
enum class ErrorKind {
  usage,        ///< bad input, an unsupported combination, a malformed file (exit 2)
  environment,  ///< backend not built, no device, unwritable output (exit 3)
  peer,         ///< another rank failed or disagreed (exit 3)
  timeout,      ///< an awaited rank made no progress (exit 4)
  interrupted,  ///< the user or an abort ended the run (exit 130)
};

/// Its message is one line, "problem (why): suggestion"; ranks are named "rank N". Control characters and bytes
/// that are no UTF-8, as in names of files, are written in hexadecimal.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message);
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// The Error inside `cause`. Any other exception becomes one of ErrorKind::environment with the same message.
Error as_error(const std::exception_ptr& cause);

[[noreturn]] inline void refuse(const std::string& message) { throw Error(ErrorKind::usage, message); }

namespace detail {
/// Prints the broken expectation and aborts: only a bug in distattn or its caller gets here.
[[noreturn]] void expectation_failed(const char* expression, const char* file, int line);
}  // namespace detail

}  // namespace distattn
#pragma GCC visibility pop

/// Aborts unless the condition holds, which it does if the code is right. Active in every build; not used in inner
/// loops.
#define DISTATTN_EXPECT(condition) \
  ((condition) ? static_cast<void>(0) : ::distattn::detail::expectation_failed(#condition, __FILE__, __LINE__))

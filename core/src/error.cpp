#include "distattn/error.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "distattn/host_resources.hpp"
#include "distattn/thread.hpp"

namespace distattn {
namespace {

/// How many bytes the character takes that a text begins with; 0 where that is a control character or no UTF-8, as
/// bytes of files may be.
std::size_t printable_bytes(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned>(static_cast<unsigned char>(text[at])); };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  constexpr unsigned least[] = {0, 0, 0xa0, 0x800, 0x10000};  // below 0xa0 are controls of eight bits
  if (first < 0xc0 || first > 0xf4 || text.size() < length) return 0;
  unsigned code = first & (0xffU >> (length + 1));
  for (std::size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(at) & 0x3f);
  }
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code >= least[length] && code <= 0x10ffff && !surrogate ? length : 0;
}

std::string without_controls(const std::string& message) {
  std::string line;
  for (std::size_t at = 0; at < message.size();) {
    if (const std::size_t length = printable_bytes(std::string_view(message).substr(at)); length > 0) {
      line.append(message, at, length);
      at += length;
      continue;
    }
    char spelled[5];
    std::snprintf(spelled, sizeof spelled, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(message[at++])));
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

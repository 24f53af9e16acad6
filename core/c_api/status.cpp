/// C API: version, messages, and how exceptions become codes.

#include <cstdlib>
#include <new>

#include "distattn/registry.hpp"
#include "distattn/version.hpp"
#include "handles.hpp"

namespace distattn::c_api {
namespace {

thread_local std::string message;

struct Code {
  ErrorKind kind;
  distattn_status status;
};

constexpr Code codes[] = {{ErrorKind::usage, DISTATTN_USAGE},
                          {ErrorKind::environment, DISTATTN_ENVIRONMENT},
                          {ErrorKind::peer, DISTATTN_PEER},
                          {ErrorKind::timeout, DISTATTN_TIMEOUT},
                          {ErrorKind::interrupted, DISTATTN_INTERRUPTED}};

distattn_status status_of(ErrorKind kind) {
  for (const Code& code : codes) {
    if (code.kind == kind) return code.status;
  }
  return DISTATTN_ENVIRONMENT;
}

}  // namespace

ErrorKind kind_of(distattn_status status) {
  for (const Code& code : codes) {
    if (code.status == status) return code.kind;
  }
  return ErrorKind::environment;
}

BodyFailure::BodyFailure(distattn_status status, const std::string& what)
    : Error(kind_of(status), what), status_(status) {}

char* text_copy(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

distattn_status status_of_exception() noexcept {
  try {
    try {
      throw;
    } catch (const BodyFailure& failure) {
      message = failure.what();
      return failure.status();
    } catch (const Error& error) {
      message = error.what();
      return status_of(error.kind());
    } catch (const std::bad_alloc&) {
      message = "out of memory (an allocation was refused): choose a smaller problem";
    } catch (const std::exception& error) {
      message = error.what();
    } catch (...) {
      message = "something that is no exception was thrown (by a callback): throw none";
    }
  } catch (...) {
    message.clear();  // Not even the message could be stored.
  }
  return DISTATTN_ENVIRONMENT;
}

}  // namespace distattn::c_api

extern "C" {

const char* distattn_version(void) { return distattn::version(); }

const char* distattn_message(void) { return distattn::c_api::message.c_str(); }

void distattn_text_free(char* text) { std::free(text); }

distattn_status distattn_info_json(char** json) {
  return distattn::c_api::guarded([&] {
    char*& text = distattn::c_api::result(json, "json");
    text = distattn::c_api::text_copy(distattn::info_json());
  });
}

}  // extern "C"

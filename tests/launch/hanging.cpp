/// A library to be loaded before others: the call that HANGING_CALL names never returns, as of a server, a device or a
/// file system that does not answer. HANGING_PATH: of files, only those whose path has this in it.

#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

void hang_in(const char* name) {
  const char* const call = std::getenv("HANGING_CALL");
  while (call != nullptr && std::strcmp(call, name) == 0) ::pause();
}

void hang_at(const char* path) {
  const char* const part = std::getenv("HANGING_PATH");
  if (part != nullptr && std::strstr(path, part) != nullptr) hang_in("open");
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  if (hints == nullptr || (hints->ai_flags & AI_NUMERICHOST) == 0) hang_in("getaddrinfo");
  return next<decltype(getaddrinfo)>("getaddrinfo")(node, service, hints, found);
}

// Not declared by any header that is included here: the mode is there only where a file may be made.
int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const int mode = va_arg(rest, int);
  va_end(rest);
  hang_at(path);
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}

int PMIx_Init(void* process, void* info, std::size_t count) {
  hang_in("PMIx_Init");
  return next<int(void*, void*, std::size_t)>("PMIx_Init")(process, info, count);
}

int ucp_worker_create(void* context, const void* params, void** worker) {
  hang_in("ucp_worker_create");
  return next<int(void*, const void*, void**)>("ucp_worker_create")(context, params, worker);
}
}

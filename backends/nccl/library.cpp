#include "backends/nccl/library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include <fmt/core.h>

#include "backends/room_for.hpp"
#include "distattn/error.hpp"

namespace distattn::backends::nccl {
namespace {

constexpr int oldest_version = NCCL_VERSION(2, 14, 0);   // the first whose communicators do not block
constexpr int ordered_version = NCCL_VERSION(2, 26, 0);  // the first that keeps an order if it is asked to
constexpr const char* order_variable = "NCCL_LAUNCH_ORDER_IMPLICIT";

template <class Function>
void find(void* library, const std::string& file, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw Error(ErrorKind::environment,
                fmt::format("{} has no {} (it is older than NCCL {} or something else): install a newer NCCL", file,
                            name, version_text(oldest_version)));
  }
}

/// NCCL looks once. One that somebody else has loaded may have looked already.
void ask_for_order(const std::string& file) {
  void* const loaded = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (loaded == nullptr) {
    setenv(order_variable, "1", 0);
  } else {
    dlclose(loaded);
  }
}

bool was_asked_for_order() {
  const char* const value = std::getenv(order_variable);
  return value != nullptr && std::strtoll(value, nullptr, 0) != 0;
}

Library load(const std::string& file) {
  expect_room_for("NCCL");
  ask_for_order(file);
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    throw Error(ErrorKind::environment,
                fmt::format("NCCL cannot be loaded ({}): install libnccl2, or add its folder to LD_LIBRARY_PATH",
                            why != nullptr ? why : file.c_str()));
  }
  Library library;
  find(handle, file, "ncclGetVersion", library.get_version);
  find(handle, file, "ncclGetUniqueId", library.get_unique_id);
  find(handle, file, "ncclCommInitRankConfig", library.comm_init);
  find(handle, file, "ncclCommGetAsyncError", library.comm_get_async_error);
  find(handle, file, "ncclCommFinalize", library.comm_finalize);
  find(handle, file, "ncclCommDestroy", library.comm_destroy);
  find(handle, file, "ncclCommAbort", library.comm_abort);
  find(handle, file, "ncclSend", library.send);
  find(handle, file, "ncclRecv", library.recv);
  find(handle, file, "ncclAllGather", library.all_gather);
  find(handle, file, "ncclGroupStart", library.group_start);
  find(handle, file, "ncclGroupEnd", library.group_end);
  find(handle, file, "ncclGetErrorString", library.error_string);
  find(handle, file, "ncclGetLastError", library.last_error);
  int version = 0;
  library.check(library.get_version(&version), "say its version");
  library.version = version_text(version);
  if (version < oldest_version) {
    throw Error(ErrorKind::environment, fmt::format("NCCL {} is too old ({} is needed): install a newer one",
                                                    library.version, version_text(oldest_version)));
  }
  library.keeps_order = version >= ordered_version && was_asked_for_order();
  return library;
}

}  // namespace

std::string Library::failure(ncclResult_t status, const std::string& what) const {
  const char* const more = last_error(nullptr);
  return fmt::format("NCCL could not {} ({}{}{})", what, error_string(status),
                     more != nullptr && *more != '\0' ? ": " : "", more != nullptr ? more : "");
}

void Library::check(ncclResult_t status, const char* what) const {
  if (status == ncclSuccess || status == ncclInProgress) return;
  throw Error(ErrorKind::environment, failure(status, what));
}

const Library& load_library(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, Library> loaded;
  const std::scoped_lock lock(mutex);
  const auto found = loaded.find(name);
  return found != loaded.end() ? found->second : loaded.emplace(name, load(name)).first->second;
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace distattn::backends::nccl

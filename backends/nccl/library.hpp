#pragma once
/// NCCL as it is found when the program runs: no library of it is linked.

#include <nccl.h>

#include <memory>
#include <string>

namespace distattn::backends::nccl {

/// The functions of libnccl.so.2 that the transport calls.
struct Library {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  std::string version;  ///< as "2.28.9"
  /// Groups of several communicators start on a GPU in the order in which they were handed over (and so cannot wait for
  /// each other), side by side where they fit.
  bool keeps_order = false;

  /// "NCCL could not <what> (…)", with what NCCL says itself.
  std::string failure(ncclResult_t status, const std::string& what) const;
  /// Throws Error(environment) with failure(). A call that is still in progress is none.
  void check(ncclResult_t status, const char* what) const;
};

/// The library of that name or path, loaded once and kept. Throws Error(environment) where it is missing or too old.
/// Sets NCCL_LAUNCH_ORDER_IMPLICIT in the environment where nobody has, nor loaded the library before.
const Library& load_library(const std::string& name = "libnccl.so.2");

std::string version_text(int version);

}  // namespace distattn::backends::nccl

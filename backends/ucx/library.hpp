#pragma once
/// UCX's functions, from a library that is loaded when they are first asked for: its constructors open logs, take
/// signals and start threads, which only those who exchange messages over it want.

#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>

#include <string>

namespace distattn::backends::ucx {

struct Library {
  decltype(&ucp_get_version) get_version = nullptr;
  decltype(&ucp_config_read) config_read = nullptr;
  decltype(&ucp_config_modify) config_modify = nullptr;
  decltype(&ucp_config_release) config_release = nullptr;
  decltype(&ucp_init_version) init_version = nullptr;
  decltype(&ucp_cleanup) cleanup = nullptr;
  decltype(&ucp_context_query) context_query = nullptr;
  decltype(&ucp_mem_map) mem_map = nullptr;
  decltype(&ucp_mem_unmap) mem_unmap = nullptr;
  decltype(&ucp_worker_create) worker_create = nullptr;
  decltype(&ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&ucp_worker_get_address) worker_get_address = nullptr;
  decltype(&ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&ucp_worker_progress) worker_progress = nullptr;
  decltype(&ucp_worker_flush_nbx) worker_flush_nbx = nullptr;
  decltype(&ucp_ep_create) ep_create = nullptr;
  decltype(&ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&ucp_tag_send_nbx) tag_send_nbx = nullptr;
  decltype(&ucp_tag_recv_nbx) tag_recv_nbx = nullptr;
  decltype(&ucp_tag_probe_nb) tag_probe_nb = nullptr;
  decltype(&ucp_request_cancel) request_cancel = nullptr;
  decltype(&ucp_request_free) request_free = nullptr;
  decltype(&ucs_status_string) status_string = nullptr;
  decltype(&ucs_global_opts_set_value) global_opts_set_value = nullptr;

  std::string version;  ///< "1.13.1"
};

/// Loads it once. Throws Error(environment) where it cannot be, or would end the process while it is.
const Library& library();

}  // namespace distattn::backends::ucx

#include "backends/ucx/worker.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "distattn/index.hpp"

namespace distattn::backends::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto closing_time = std::chrono::seconds(1);

bool under_way(const InFlight& message) { return message.request != nullptr && !message.done; }

/// Completion is always told by callback, also where UCX is done at once.
ucp_request_param_t parameters(InFlight& message) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.user_data = &message;
  return param;
}

struct Layout {
  void* buffer;
  std::size_t count;
};

Layout lay_out(InFlight& message, ucp_request_param_t& param) {
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
  if (message.memory != nullptr) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.memory_type = message.memory->type();
  }
  if (message.pieces.size() > 1) {
    param.datatype = ucp_dt_make_iov();
    return {message.pieces.data(), message.pieces.size()};
  }
  param.datatype = ucp_dt_make_contig(1);
  if (message.pieces.empty()) return {nullptr, 0};
  if (message.memory != nullptr) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param.memh = message.memory->handle();
  }
  return {message.pieces[0].buffer, message.pieces[0].length};
}

/// What UCX says where it gets no shared memory.
bool lacks_memory(ucs_status_t status) {
  return status == UCS_ERR_NO_RESOURCE || status == UCS_ERR_NO_MEMORY || status == UCS_ERR_SHMEM_SEGMENT;
}

/// Why there may be none, and what helps. The kernel tells UCX, which does not tell us.
std::pair<std::string, std::string> want_of_shared_memory(const struct statvfs& shared) {
  const std::uint64_t free_bytes = std::uint64_t{shared.f_bavail} * shared.f_frsize;
  rlimit size{};
  if (::access("/dev/shm", W_OK | X_OK) != 0)
    return {fmt::format("/dev/shm: {}", std::strerror(errno)), "make it writable"};
  if (shared.f_files > 0 && shared.f_favail == 0)
    return {"/dev/shm may have no more files", "mount it with more nr_inodes"};
  if (::getrlimit(RLIMIT_FSIZE, &size) == 0 && size.rlim_cur < free_bytes) {
    return {fmt::format("the limit of file sizes, {} bytes, holds for shared memory too", size.rlim_cur),
            "raise ulimit -f"};
  }
  return {fmt::format("{} bytes are free in /dev/shm", free_bytes), "enlarge it, as docker run --shm-size does"};
}

void check_worker(ucs_status_t status) {
  struct statvfs shared {};
  if (!lacks_memory(status) || ::statvfs("/dev/shm", &shared) != 0) return check("ucp_worker_create", status);
  const auto [why, remedy] = want_of_shared_memory(shared);
  throw Error(ErrorKind::environment,
              fmt::format("ucp_worker_create failed ({}; {}): {}, or do without by UCX_TLS=tcp,self",
                          library().status_string(status), why, remedy));
}

/// Still reachable at the end of the process, so that nobody takes it for a leak.
void keep(std::shared_ptr<ucp_context> context, ucp_worker_h worker) {
  static std::mutex mutex;
  static auto& left = *new std::vector<std::pair<std::shared_ptr<ucp_context>, ucp_worker_h>>;
  const std::scoped_lock lock(mutex);
  left.emplace_back(std::move(context), worker);
}

}  // namespace

Worker::Worker(const Context& context) : context_(context.share()) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  check_worker(library().worker_create(context.get(), &params, &worker_));
}

Worker::~Worker() {
  if (left_) {
    keep(std::move(context_), worker_);
    return;
  }
  close_all();
  library().worker_destroy(worker_);
}

Worker::Address Worker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  check("ucp_worker_get_address", library().worker_get_address(worker_, &address, &bytes));
  const auto* first = reinterpret_cast<const std::byte*>(address);
  Address copy(first, first + bytes);
  library().worker_release_address(worker_, address);
  return copy;
}

ucp_ep_h Worker::endpoint(Rank peer) {
  Endpoint& endpoint = endpoints_[peer];
  if (endpoint.handle != nullptr) return endpoint.handle;
  endpoint.worker = this;
  endpoint.peer = peer;
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(addresses_[index(peer)].data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = &endpoint;
  params.err_handler.cb = [](void* argument, ucp_ep_h, ucs_status_t status) {
    const auto& failed = *static_cast<Endpoint*>(argument);
    failed.worker->lost(failed.peer, status);
  };
  const ucs_status_t status = library().ep_create(worker_, &params, &endpoint.handle);
  if (status != UCS_OK) lost(peer, status);
  return endpoint.handle;
}

void Worker::lost(Rank peer, ucs_status_t status) {
  if (failed_peer_ >= 0) return;
  failed_peer_ = peer;
  failure_ = status;
}

void Worker::completed(InFlight& message, ucs_status_t status, std::size_t received) {
  message.done = true;
  message.status = status;
  message.received = received;
}

void Worker::post(InFlight& message, void* request) {
  if (UCS_PTR_IS_ERR(request) || request == nullptr) {
    completed(message, UCS_PTR_STATUS(request), 0);
  } else {
    message.request = request;
  }
}

void Worker::release(InFlight& message) {
  if (message.done && message.request != nullptr) library().request_free(std::exchange(message.request, nullptr));
}

void Worker::send(InFlight& message, std::uint64_t tag) {
  const ucp_ep_h to = endpoint(message.peer);
  if (to == nullptr) return completed(message, failure_, 0);
  ucp_request_param_t param = parameters(message);
  const Layout layout = lay_out(message, param);
  param.cb.send = [](void*, ucs_status_t status, void* user) { completed(*static_cast<InFlight*>(user), status, 0); };
  post(message, library().tag_send_nbx(to, layout.buffer, layout.count, tag, &param));
}

void Worker::receive(InFlight& message, std::uint64_t tag) {
  ucp_request_param_t param = parameters(message);
  const Layout layout = lay_out(message, param);
  param.cb.recv = [](void*, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user) {
    completed(*static_cast<InFlight*>(user), status, info->length);
  };
  constexpr std::uint64_t whole = ~std::uint64_t{0};
  post(message, library().tag_recv_nbx(worker_, layout.buffer, layout.count, tag, whole, &param));
}

void Worker::flush(InFlight& flushing) {
  ucp_request_param_t param = parameters(flushing);
  param.cb.send = [](void*, ucs_status_t status, void* user) { completed(*static_cast<InFlight*>(user), status, 0); };
  post(flushing, library().worker_flush_nbx(worker_, &param));
}

bool Worker::unexpected(std::uint64_t tag, std::uint64_t mask, std::uint64_t& found, std::size_t& bytes) {
  ucp_tag_recv_info_t info{};
  if (library().tag_probe_nb(worker_, tag, mask, 0, &info) == nullptr) return false;
  found = info.sender_tag;
  bytes = info.length;
  return true;
}

void Worker::leave(std::span<const InFlight> messages) {
  for (const InFlight& message : messages) {
    if (under_way(message) && !message.outgoing) library().request_cancel(worker_, message.request);
  }
  left_ = true;
}

void Worker::close_all() {
  for (auto& [peer, endpoint] : endpoints_) {
    if (endpoint.handle == nullptr) continue;
    InFlight& closing = closings_.emplace_back();
    ucp_request_param_t param = parameters(closing);
    param.cb.send = [](void*, ucs_status_t status, void* user) { completed(*static_cast<InFlight*>(user), status, 0); };
    post(closing, library().ep_close_nbx(std::exchange(endpoint.handle, nullptr), &param));
  }
  const auto deadline = Clock::now() + closing_time;
  const auto open = [](const InFlight& closing) { return !closing.done; };
  while (std::any_of(closings_.begin(), closings_.end(), open) && Clock::now() < deadline) {
    if (!progress()) std::this_thread::yield();
  }
  for (InFlight& closing : closings_) release(closing);
}

}  // namespace distattn::backends::ucx

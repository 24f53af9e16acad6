#include <pmix.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>

#include <fmt/core.h>

#include "backends/launch/bootstrap.hpp"
#include "backends/launch/handshake.hpp"
#include "backends/launch/launcher.hpp"
#include "backends/registration.hpp"

namespace distattn::backends::launch {
namespace {

constexpr const char* address_key = "distattn.rank0";

[[noreturn]] void fail(const char* what, pmix_status_t status) {
  throw Error(ErrorKind::environment, fmt::format("{} failed ({}) start the ranks with mpirun, or srun --mpi=pmix",
                                                  what, PMIx_Error_string(status)));
}

void check(const char* what, pmix_status_t status) {
  if (status != PMIX_SUCCESS) fail(what, status);
}

/// This process as a client of the server that started it: from the first run to the end of the process, because a
/// client that has ended does not come back, and the server takes an end before the last run's for a failure.
class Client {
 public:
  static Client& of_process() {
    static Client client;
    return client;
  }

  Client() { check("PMIx_Init", PMIx_Init(&self_, nullptr, 0)); }
  ~Client() {
    if (::getpid() == process_) PMIx_Finalize(nullptr, 0);  // a fork that exits is not the server's client
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Place place() {
    Place place;
    place.rank = static_cast<Rank>(self_.rank);
    place.size = static_cast<int>(number(PMIX_JOB_SIZE, PMIX_RANK_WILDCARD));
    place.local_size = static_cast<int>(number(PMIX_LOCAL_SIZE, PMIX_RANK_WILDCARD));
    place.local_rank = static_cast<Rank>(number(PMIX_LOCAL_RANK, self_.rank));
    return place;
  }
  void put(const std::string& text) {
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    PMIX_VALUE_LOAD(&value, text.c_str(), PMIX_STRING);
    check("PMIx_Put", PMIx_Put(PMIX_GLOBAL, address_key, &value));
    PMIX_VALUE_DESTRUCT(&value);
    check("PMIx_Commit", PMIx_Commit());
  }
  /// Returns when all ranks have come here.
  void fence(Clock::time_point deadline) {
    const auto fence = std::make_shared<Fence>();
    PMIX_INFO_LOAD(&fence->collect, PMIX_COLLECT_DATA, &fence->yes, PMIX_BOOL);
    // Freed by the answer, which may come when nobody waits for it any more.
    auto* const kept = new std::shared_ptr<Fence>(fence);
    const pmix_status_t begun = PMIx_Fence_nb(nullptr, 0, &fence->collect, 1, Fence::answer, kept);
    if (begun != PMIX_SUCCESS) {
      delete kept;
      if (begun != PMIX_OPERATION_SUCCEEDED) fail("PMIx_Fence_nb", begun);
      return;
    }
    const auto status = fence->wait(deadline);
    if (!status) {
      throw Error(ErrorKind::timeout, fmt::format("not all of {} ranks have come (rank {} has waited for the timeout) "
                                                  "look for those that hang, or give a longer timeout",
                                                  place().size, self_.rank));
    }
    check("PMIx_Fence_nb", *status);
  }
  std::string text_of_rank_zero() {
    pmix_value_t* value = get(address_key, 0);
    const std::string text = value->type == PMIX_STRING ? value->data.string : "";
    PMIX_VALUE_RELEASE(value);
    return text;
  }

 private:
  pmix_value_t* get(const char* key, pmix_rank_t rank) {
    pmix_proc_t who;
    PMIX_PROC_LOAD(&who, self_.nspace, rank);
    pmix_value_t* value = nullptr;
    const pmix_status_t status = PMIx_Get(&who, key, nullptr, 0, &value);
    if (status != PMIX_SUCCESS || value == nullptr) fail(fmt::format("PMIx_Get of {}", key).c_str(), status);
    return value;
  }
  std::uint32_t number(const char* key, pmix_rank_t rank) {
    pmix_value_t* value = get(key, rank);
    const std::uint32_t found = value->type == PMIX_UINT16 ? value->data.uint16 : value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    return found;
  }

  /// Of which the server says when it is over, on a thread of its own.
  class Fence {
   public:
    Fence() { PMIX_INFO_CONSTRUCT(&collect); }
    ~Fence() { PMIX_INFO_DESTRUCT(&collect); }
    Fence(const Fence&) = delete;
    Fence& operator=(const Fence&) = delete;

    static void answer(pmix_status_t status, void* kept) {
      const std::unique_ptr<std::shared_ptr<Fence>> fence(static_cast<std::shared_ptr<Fence>*>(kept));
      const std::scoped_lock lock((*fence)->mutex_);
      (*fence)->status_ = status;
      (*fence)->over_.notify_all();
    }
    /// Nothing where it is not over in time.
    std::optional<pmix_status_t> wait(Clock::time_point deadline) {
      std::unique_lock lock(mutex_);
      over_.wait_until(lock, deadline, [&] { return status_.has_value(); });
      return status_;
    }

    pmix_info_t collect;
    bool yes = true;

   private:
    std::mutex mutex_;
    std::condition_variable over_;
    std::optional<pmix_status_t> status_;
  };

  const pid_t process_ = ::getpid();
  pmix_proc_t self_{};
};

}  // namespace

static std::unique_ptr<Bootstrap> meet_through_pmix(int ranks, double timeout_s) {
  const auto all_come_by = after_seconds(timeout_s);
  Client& client = Client::of_process();
  const Place place = client.place();
  check_size(ranks, "pmix", place.size);
  if (place.rank == 0) {
    const Listening listening = listen_for_ranks(place.local_size == place.size, process_variable);
    const std::string token = process_variable("DISTATTN_TOKEN").value_or(draw_token());
    std::string text = token;
    for (const Endpoint& endpoint : listening.endpoints) text += fmt::format(" {} {}", endpoint.host, endpoint.port);
    client.put(text);
    client.fence(all_come_by);
    return std::make_unique<ProcessBootstrap>("pmix", place, listening.socket, token, timeout_s);
  }
  client.fence(all_come_by);
  std::istringstream words(client.text_of_rank_zero());
  Whereabouts where;
  words >> where.token;
  for (Endpoint endpoint; words >> endpoint.host >> endpoint.port;) where.endpoints.push_back(endpoint);
  return std::make_unique<ProcessBootstrap>(
      "pmix", place, [&] { return where; }, timeout_s);
}

}  // namespace distattn::backends::launch

namespace distattn::backends {

Registration register_pmix() {
  const bool started = launch::process_variable("PMIX_NAMESPACE").has_value();
  Registration registration{
      {"pmix", BackendKind::bootstrap, true, started,
       started ? "a PMIx server started this process" : "PMIX_NAMESPACE is not set", PMIx_Get_version()},
      {}};
  registration.make_bootstrap = [](const BootstrapOptions& options) {
    return launch::meet_through_pmix(options.ranks, options.timeout_s);
  };
  return registration;
}

}  // namespace distattn::backends

#include <pmix.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/core.h>

#include "backends/launch/bootstrap.hpp"
#include "backends/launch/handshake.hpp"
#include "backends/launch/launcher.hpp"
#include "backends/patient_call.hpp"
#include "backends/pmix/mpirun.hpp"
#include "backends/registration.hpp"
#include "backends/slurm/slurm.hpp"

namespace distattn::backends::launch {
namespace {

constexpr const char* address_key = "distattn.rank0";

[[noreturn]] void fail(const std::string& what, pmix_status_t status) {
  throw Error(ErrorKind::environment, fmt::format("{} failed ({}): start the ranks with mpirun, or srun --mpi=pmix",
                                                  what, PMIx_Error_string(status)));
}

void check(const char* what, pmix_status_t status) {
  if (status != PMIX_SUCCESS) fail(what, status);
}

Error too_late(const char* what) {
  return {ErrorKind::timeout,
          fmt::format("{} has not returned within the timeout (the PMIx server does not answer): look "
                      "whether the launcher still runs, or give a longer timeout",
                      what)};
}

/// What a call of PMIx returns, which waits for the server.
pmix_status_t answered(const char* what, Clock::time_point deadline, std::function<pmix_status_t()> call) {
  return call_before<pmix_status_t>(deadline, "ask PMIx", std::move(call), [what] { return too_late(what); });
}

/// This process as a client of the server that started it: from the first run to the end of the process, because a
/// client that has ended does not come back, and the server takes an end before the last run's for a failure.
class Client {
 public:
  /// Null, and why in `why`, where the server knows nothing of this rank: it serves each once, and forgets it when a
  /// program that has asked it ends.
  static Client* of_process(Clock::time_point deadline, std::string& why) {
    static std::mutex mutex;
    static std::unique_ptr<Client> client;
    const std::scoped_lock lock(mutex);
    if (client) return client.get();
    auto self = std::make_shared<pmix_proc_t>();
    const auto begin = [self] { return PMIx_Init(self.get(), nullptr, 0); };
    const pmix_status_t status = answered("PMIx_Init", deadline, begin);
    if (status != PMIX_SUCCESS) {
      why = fmt::format("PMIx_Init failed: {}", PMIx_Error_string(status));
      return nullptr;
    }
    client = std::make_unique<Client>(*self);
    const pmix_status_t known = client->ask(deadline);
    if (known == PMIX_SUCCESS) return client.get();
    if (known != PMIX_ERR_NOT_FOUND) fail("PMIx_Get of this rank's place", known);
    why = "its server has forgotten this rank";
    return nullptr;
  }

  explicit Client(const pmix_proc_t& self) : self_(self) {}
  ~Client() {
    if (::getpid() == process_) PMIx_Finalize(nullptr, 0);  // a fork that exits is not the server's client
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Place& place() const { return place_; }
  void put(const std::string& text, Clock::time_point deadline) {
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    PMIX_VALUE_LOAD(&value, text.c_str(), PMIX_STRING);
    check("PMIx_Put", PMIx_Put(PMIX_GLOBAL, address_key, &value));
    PMIX_VALUE_DESTRUCT(&value);
    check("PMIx_Commit", answered("PMIx_Commit", deadline, [] { return PMIx_Commit(); }));
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
      throw Error(ErrorKind::timeout, fmt::format("not all of {} ranks have come (rank {} has waited for the timeout): "
                                                  "look for those that hang, or give a longer timeout",
                                                  place_.size, self_.rank));
    }
    check("PMIx_Fence_nb", *status);
  }
  std::string text_of_rank_zero(Clock::time_point deadline) {
    const auto text = std::make_shared<std::string>();
    const auto ask = [self = self_, text] {
      pmix_value_t* value = nullptr;
      const pmix_status_t status = get(self, address_key, 0, value);
      if (status == PMIX_SUCCESS && value->type == PMIX_STRING) *text = value->data.string;
      if (status == PMIX_SUCCESS) PMIX_VALUE_RELEASE(value);
      return status;
    };
    check("PMIx_Get of rank 0's address", answered("PMIx_Get", deadline, ask));
    return *text;
  }

 private:
  static pmix_status_t get(const pmix_proc_t& self, const char* key, pmix_rank_t rank, pmix_value_t*& value) {
    pmix_proc_t who;
    PMIX_PROC_LOAD(&who, self.nspace, rank);
    const pmix_status_t status = PMIx_Get(&who, key, nullptr, 0, &value);
    return status == PMIX_SUCCESS && value == nullptr ? PMIX_ERR_NOT_FOUND : status;
  }
  static pmix_status_t number(const pmix_proc_t& self, const char* key, pmix_rank_t rank, int& number) {
    pmix_value_t* value = nullptr;
    const pmix_status_t status = get(self, key, rank, value);
    if (status != PMIX_SUCCESS) return status;
    number = static_cast<int>(value->type == PMIX_UINT16 ? value->data.uint16 : value->data.uint32);
    PMIX_VALUE_RELEASE(value);
    return status;
  }
  /// Where this rank is among the others.
  pmix_status_t ask(Clock::time_point deadline) {
    const auto found = std::make_shared<Place>();
    const auto look = [self = self_, found] {
      found->rank = static_cast<Rank>(self.rank);
      pmix_status_t status = number(self, PMIX_JOB_SIZE, PMIX_RANK_WILDCARD, found->size);
      if (status == PMIX_SUCCESS) status = number(self, PMIX_LOCAL_SIZE, PMIX_RANK_WILDCARD, found->local_size);
      if (status == PMIX_SUCCESS) status = number(self, PMIX_LOCAL_RANK, self.rank, found->local_rank);
      return status;
    };
    const pmix_status_t status = answered("PMIx_Get", deadline, look);
    if (status == PMIX_SUCCESS) place_ = *found;
    return status;
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
  const pmix_proc_t self_;
  Place place_;
};

}  // namespace

/// By the variables of what lies around PMIx. Throws where they do not do.
static std::unique_ptr<Bootstrap> meet_without_server(int ranks, double timeout_s, const std::string& why) {
  auto around = mpirun_environment(process_variable);
  if (!around) around = slurm_environment(process_variable);
  if (!around) {
    throw Error(ErrorKind::environment,
                fmt::format("PMIx serves this rank no more (an earlier program of the same script was its client; {}): "
                            "start each run with an mpirun or srun of its own, set DISTATTN_ADDRESS to the host of "
                            "rank 0, or give bootstrap file:PATH",
                            why));
  }
  check_size(ranks, "pmix", around->place.size);
  around->launcher = "pmix";
  return meet_at_port(*around, timeout_s);
}

/// A server of PMIx serves each rank one program after the other at best. Where mpirun's variables say all that it
/// could, it is not asked: then a script may have several runs, one after the other or at once.
static std::unique_ptr<Bootstrap> meet_through_pmix(int ranks, double timeout_s) {
  const auto variables_do = mpirun_environment(process_variable);
  if (variables_do && variables_do->one_node()) return meet_without_server(ranks, timeout_s, "");
  const auto all_come_by = after_seconds(timeout_s);
  std::string why;
  Client* const client = Client::of_process(all_come_by, why);
  if (client == nullptr) return meet_without_server(ranks, timeout_s, why);
  const Place place = client->place();
  check_size(ranks, "pmix", place.size);
  if (place.rank == 0) {
    const Listening listening = listen_for_ranks(place.local_size == place.size, process_variable);
    const std::string token = process_variable("DISTATTN_TOKEN").value_or(draw_token());
    std::string text = token;
    for (const Endpoint& endpoint : listening.endpoints) text += fmt::format(" {} {}", endpoint.host, endpoint.port);
    client->put(text, all_come_by);
    client->fence(all_come_by);
    return std::make_unique<ProcessBootstrap>("pmix", place, listening.socket, token, timeout_s);
  }
  client->fence(all_come_by);
  std::istringstream words(client->text_of_rank_zero(all_come_by));
  MeetingPoint where;
  words >> where.run.token;
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

#include "backends/nccl/communicator.hpp"

#include <thread>

#include "distattn/error.hpp"

namespace distattn::backends::nccl {

Communicator::Communicator(const Library& library, cuda::Driver& driver, const ncclUniqueId& id, Rank rank, int size,
                           const cuda::Watch& watch)
    : library_(library), driver_(driver) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  driver_.make_current();
  try {
    library_.check(library_.comm_init(&comm_, size, id, rank, &config), "join the ranks");
    settle("join the ranks", watch);
  } catch (...) {
    abort();
    throw;
  }
}

Communicator::~Communicator() {
  if (finalized_ && comm_ != nullptr) {
    library_.comm_destroy(comm_);
  } else {
    abort();
  }
}

/// Returns when the last call has taken effect.
void Communicator::settle(const char* what, const cuda::Watch& watch) {
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (comm_ == nullptr) return;  // ended: the step's event says why
      ncclResult_t status = ncclSuccess;
      library_.check(library_.comm_get_async_error(comm_, &status), what);
      library_.check(status, what);
      if (status == ncclSuccess) return watch.over();
    }
    watch.look();
    std::this_thread::yield();
  }
}

void Communicator::issue(const Calls& calls, const cuda::Watch& watch) {
  watch.look();
  {
    const std::scoped_lock lock(mutex_);
    if (comm_ == nullptr) return;
    library_.check(library_.group_start(), "start a group");
    const ncclResult_t added = calls(comm_);
    const ncclResult_t ended = library_.group_end();
    library_.check(added, "take the messages");
    library_.check(ended, "start the messages");
  }
  settle("start the messages", watch);
}

std::string Communicator::fault() {
  const std::scoped_lock lock(mutex_);
  if (comm_ == nullptr) return "";
  ncclResult_t status = ncclSuccess;
  const ncclResult_t asked = library_.comm_get_async_error(comm_, &status);
  if (asked != ncclSuccess && asked != ncclInProgress) status = asked;
  return status == ncclSuccess || status == ncclInProgress ? "" : library_.failure(status, "exchange messages");
}

bool Communicator::finalize(const cuda::Watch& watch) noexcept {
  try {
    driver_.make_current();
    {
      const std::scoped_lock lock(mutex_);
      if (comm_ == nullptr) return true;
      library_.check(library_.comm_finalize(comm_), "end the exchange");
    }
    settle("end the exchange", watch);
    finalized_ = true;
    return true;
  } catch (const Error&) {
    return false;  // somebody has failed, and says so elsewhere
  }
}

void Communicator::abort() noexcept {
  const std::scoped_lock lock(mutex_);
  if (comm_ != nullptr) library_.comm_abort(comm_);
  comm_ = nullptr;
}

}  // namespace distattn::backends::nccl

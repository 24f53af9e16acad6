#include "backends/nccl/communicator.hpp"

#include <array>
#include <system_error>
#include <thread>
#include <utility>

#include "distattn/error.hpp"

namespace distattn::backends::nccl {
namespace {

constexpr auto ending_time = std::chrono::seconds(5);

/// Runs `call` on a thread of its own, which nobody has to wait for.
std::future<void> beside(const std::function<void()>& call) {
  std::promise<void> ended;
  std::future<void> end = ended.get_future();
  try {
    std::thread([call, promise = std::move(ended)]() mutable {
      call();
      promise.set_value();
    }).detach();
  } catch (const std::system_error&) {
    call();  // no thread is to be had
  }
  return end;
}

}  // namespace

Communicator::Communicator(const Library& library, cuda::Driver& driver, const ncclUniqueId& id, Rank rank, int size,
                           const Watch& watch)
    : library_(library), driver_(driver) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  driver_.make_current();
  try {
    library_.check(library_.comm_init(&comm_, size, id, rank, &config), "join the ranks");
    settle("join the ranks", watch);
  } catch (...) {
    await_ends(std::array{end()});
    throw;
  }
}

Communicator::~Communicator() { await_ends(std::array{end()}); }

/// Returns when the last call has taken effect.
void Communicator::settle(const char* what, const Watch& watch) {
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

void Communicator::issue(const Calls& calls, const Watch& watch) {
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

bool Communicator::finalize(const Watch& watch) noexcept {
  try {
    driver_.make_current();
    {
      const std::scoped_lock lock(mutex_);
      if (comm_ == nullptr) return true;
      library_.check(library_.comm_finalize(comm_), "end the exchange");
    }
    settle("end the exchange", watch);
    const std::scoped_lock lock(mutex_);
    finalized_ = true;
    return true;
  } catch (const Error&) {
    return false;  // somebody has failed, and says so elsewhere
  }
}

Communicator::End Communicator::end() noexcept {
  const std::scoped_lock lock(mutex_);
  if (const ncclComm_t comm = std::exchange(comm_, nullptr); comm != nullptr) {
    end_.over = beside([comm, call = finalized_ ? library_.comm_destroy : library_.comm_abort] { call(comm); });
    end_.until = std::chrono::steady_clock::now() + ending_time;
  }
  return end_;
}

void await_ends(std::span<const Communicator::End> ends) noexcept {
  for (const Communicator::End& end : ends) {
    if (end.over.valid()) end.over.wait_until(end.until);
  }
}

}  // namespace distattn::backends::nccl

#include "backends/patient_call.hpp"

#include <atomic>
#include <system_error>
#include <thread>

#include "distattn/thread.hpp"

namespace distattn {
namespace {

std::atomic<int> under_way{0};

}  // namespace

int calls_left_behind() noexcept { return under_way; }

namespace backends {

void run_beside(const char* purpose, std::function<void()> body) {
  ++under_way;
  try {
    std::thread([body = std::move(body)]() mutable {
      body();
      body = nullptr;
      --under_way;
    }).detach();
  } catch (const std::system_error& refused) {
    --under_way;
    throw no_thread("distattn", purpose, refused);
  }
}

}  // namespace backends
}  // namespace distattn

#include "backends/ucx/transport.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/core.h>

#include "backends/registration.hpp"
#include "backends/ucx/shared_memory.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/thread.hpp"

namespace distattn::backends::ucx {
namespace {

Control& control_of(Bootstrap& bootstrap) {
  Control* control = bootstrap.control();
  if (control != nullptr) return *control;
  refuse(fmt::format("transport ucx does not connect the ranks of bootstrap {} (they share a process): use inproc",
                     bootstrap.name()));
}

std::vector<Worker::Address> exchange_addresses(Bootstrap& bootstrap, const Worker& worker) {
  return bootstrap.all_gather(worker.address());
}

/// Whether every rank's UCX reaches such memory. A collective.
bool all_reach(ucs_memory_type_t type, const Context& context, Bootstrap& bootstrap) {
  const std::byte mine{context.reaches(type)};
  const auto ranks = bootstrap.all_gather({&mine, 1});
  return std::all_of(ranks.begin(), ranks.end(), [](const auto& theirs) { return theirs.at(0) != std::byte{0}; });
}

}  // namespace

UcxTransport::UcxTransport(Bootstrap& bootstrap, ucs_memory_type_t gpu_memory)
    : rank_(bootstrap.rank()),
      size_(bootstrap.size()),
      control_(control_of(bootstrap)),
      segments_(bootstrap),
      set_up_(SetUp::before(RunningClock::now() + control_.timeout(), rank_, size_,
                            can_share_memory(bootstrap) ? std::optional(segments_.path()) : std::nullopt, control_)),
      gpu_memory_(gpu_memory),
      reaches_gpus_(all_reach(gpu_memory, *set_up_.context, bootstrap)),
      near_(std::move(set_up_.near), Lane::near, rank_, control_, reaches_gpus_ ? Pieces::alone : Pieces::in_lists),
      far_(std::move(set_up_.far), Lane::far, rank_, control_, reaches_gpus_ ? Pieces::alone : Pieces::in_lists) {
  near_.worker().set_addresses(exchange_addresses(bootstrap, near_.worker()));
  far_.worker().set_addresses(exchange_addresses(bootstrap, far_.worker()));
  segments_.settle();
  try {
    serving_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  } catch (const std::system_error& refused) {
    throw no_thread(fmt::format("rank {}", rank_), "exchange messages", refused);
  }
  on_failure(nullptr);  // last: where this throws, nobody may call it
}

UcxTransport::~UcxTransport() { control_.on_failure(nullptr); }

Event UcxTransport::submit(const Step& step, BufferTable& buffers, std::span<const Event> after) {
  try {
    for (const Event& event : after) event.wait();
    (step.lane == Lane::far ? far_ : near_).exchange(step, buffers, registered(buffers));
    return {};
  } catch (...) {
    return Event::failed(std::current_exception());
  }
}

void UcxTransport::abort(const Error& error) noexcept {
  control_.abort(error);
  end_lanes();
}

/// A rank that has what it wants and computes would else keep others waiting for as long as that takes.
void UcxTransport::serve(const std::stop_token& stop) {
  leave_openmp_place();
  constexpr auto pause = std::chrono::milliseconds(1);
  while (!stop.stop_requested()) {
    const bool near_moved = near_.serve(), far_moved = far_.serve();
    if (!near_moved && !far_moved) std::this_thread::sleep_for(pause);
  }
}

void UcxTransport::end_lanes() noexcept {
  near_.ended() = true;
  far_.ended() = true;
}

void UcxTransport::on_failure(std::function<void(const Error&)> listener) {
  control_.on_failure([this, listener = std::move(listener)](const Error& error) {
    end_lanes();
    if (!listener) return;
    const ExchangeLane& waiting = near_.waits() ? near_ : far_;
    listener(waiting.seen_from_here(error));
  });
}

/// A table's memory is registered when it is first asked for, and until the table ends.
const RegisteredMemory* UcxTransport::registered(BufferTable& buffers) const {
  const std::span<std::byte> memory = buffers.memory();
  if (memory.empty()) return nullptr;
  buffers.make_current();
  const ucs_memory_type_t type = buffers.space() == MemorySpace::host ? UCS_MEMORY_TYPE_HOST : gpu_memory_;
  const auto make = [&] {
    return std::make_shared<RegisteredMemory>(*set_up_.context, memory.data(), memory.size(), type);
  };
  return static_cast<const RegisteredMemory*>(buffers.kept_for(set_up_.context->get(), make));
}

}  // namespace distattn::backends::ucx

namespace distattn::backends {

Registration register_ucx() {
  Registration registration{{"ucx", BackendKind::transport, true, true, "ranks in different processes",
                             fmt::format("built with {}.{}", UCP_API_MAJOR, UCP_API_MINOR)},
                            {}};
  registration.look = [](BackendInfo& info) {
    try {
      info.version += ", loaded " + ucx::library().version;
    } catch (const Error& error) {
      info.usable = false;
      info.why = error.what();
    }
  };
  registration.make_transport = [](Bootstrap& bootstrap) { return std::make_unique<ucx::UcxTransport>(bootstrap); };
  registration.findings = [] {
    const bool direct = ucx::reaches_gpus();
    return direct ? "sends GPU memory as it lies" : "built without CUDA: GPU memory goes through pinned host memory";
  };
  return registration;
}

}  // namespace distattn::backends

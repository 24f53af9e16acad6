#include <exception>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "backends/inproc/meeting.hpp"
#include "backends/inproc/transport.hpp"
#include "backends/registration.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/index.hpp"
#include "distattn/inproc.hpp"
#include "distattn/thread.hpp"

namespace distattn {
namespace {
constexpr int most_ranks = 1 << 16;  // as many as are planned for
}

void run_ranks(int ranks, const std::function<void(Rank, Transport&)>& body, const InprocOptions& options) {
  if (!body) return run_ranks(ranks, std::function<void(Rank, Transport&, Bootstrap&)>(), options);
  run_ranks(
      ranks, [&body](Rank rank, Transport& transport, Bootstrap&) { body(rank, transport); }, options);
}

void run_ranks(int ranks, const std::function<void(Rank, Transport&, Bootstrap&)>& body, const InprocOptions& options) {
  if (ranks < 1)
    refuse(fmt::format("{} ranks cannot share an attention (at least one must compute): ask for more", ranks));
  if (ranks > most_ranks)
    refuse(fmt::format("{} ranks are more than one process runs ({}): ask for fewer", ranks, most_ranks));
  if (!body) refuse("no body is given (every rank runs it): pass a function");
  backends::inproc::Hub hub(ranks);
  backends::inproc::Meeting meeting(ranks);
  std::vector<std::exception_ptr> failures(index(ranks));
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < ranks; ++rank) {
    transports.push_back(std::make_unique<backends::inproc::InprocTransport>(hub, rank, options));
  }

  const auto fail = [&](Rank rank, const std::exception_ptr& failure) {
    failures[index(rank)] = failure;
    hub.abort(rank, as_error(failure));
    meeting.abort(as_error(failure));
  };
  std::vector<std::thread> threads;
  threads.reserve(index(ranks));
  try {
    for (Rank rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        leave_openmp_place();
        backends::inproc::InprocBootstrap bootstrap(meeting, rank);
        try {
          body(rank, *transports[index(rank)], bootstrap);
          hub.leave(rank);
          meeting.leave(rank);
        } catch (...) {
          fail(rank, std::current_exception());
        }
      });
    }
  } catch (const std::system_error& refused) {
    const auto started = static_cast<Rank>(threads.size());
    fail(started, std::make_exception_ptr(no_thread(fmt::format("rank {}", started), "run", refused)));
  }
  for (std::thread& thread : threads) thread.join();

  if (const std::optional<Rank> first = hub.failed()) {
    const std::exception_ptr& failure = failures[index(*first)];
    if (failure) std::rethrow_exception(failure);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

namespace backends {

Registration register_inproc() {
  return {{"inproc", BackendKind::transport, true, true, "ranks are threads of one process", ""}, {}};
}

}  // namespace backends
}  // namespace distattn

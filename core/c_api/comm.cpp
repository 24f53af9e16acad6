/// C API: communicators, from callbacks or between threads of this process.

#include <numeric>
#include <span>
#include <vector>

#include "attention.hpp"
#include "distattn/all_gather.hpp"
#include "distattn/index.hpp"
#include "distattn/inproc.hpp"
#include "distattn/subgroup.hpp"
#include "handles.hpp"

namespace distattn::c_api {
namespace {

/// A caller's exchange as a transport.
class CallbackTransport final : public Transport {
 public:
  explicit CallbackTransport(const distattn_callbacks& callbacks) : callbacks_(callbacks) {}

  std::string_view name() const override { return "callbacks"; }
  Rank rank() const override { return callbacks_.rank; }
  int size() const override { return callbacks_.size; }
  bool reaches(MemorySpace space) const override { return space == MemorySpace::host || callbacks_.reaches_cuda != 0; }

  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override {
    try {
      for (const Event& event : after) event.wait();
      Group& group = groups_[step.lane == Lane::far ? 1 : 0];
      group.collect(step, buffers);
      const int failed = callbacks_.exchange(callbacks_.user, step.lane == Lane::far ? 1 : 0, group.sends.data(),
                                             group.sends.size(), group.receives.data(), group.receives.size());
      if (failed != 0) {
        throw Error(ErrorKind::peer, "the exchange callback returned " + std::to_string(failed) +
                                         " (its messages did not go through): see the communicator behind it");
      }
      return {};
    } catch (...) {
      return Event::failed(std::make_exception_ptr(error_at(rank(), step, std::current_exception())));
    }
  }

  void abort(const Error& error) noexcept override {
    if (callbacks_.abort != nullptr) callbacks_.abort(callbacks_.user, error.what());
  }

 private:
  /// Transfers of one lane's step; keeps its memory.
  struct Group {
    std::vector<distattn_transfer> sends, receives;

    void collect(const Step& step, const BufferTable& buffers) {
      sends.clear();
      receives.clear();
      for (const Op& op : step.ops) {
        if (const auto* send = std::get_if<Send>(&op)) add(sends, send->to, buffers.parts(send->source));
        if (const auto* recv = std::get_if<Recv>(&op)) add(receives, recv->from, buffers.parts(recv->into));
      }
    }
    static void add(std::vector<distattn_transfer>& transfers, Rank peer, std::span<const BufferTable::Part> parts) {
      for (const BufferTable::Part& part : parts) {
        if (part.shape.bytes > 0) transfers.push_back({peer, part.data, part.shape.bytes});
      }
    }
  };

  const distattn_callbacks callbacks_;
  Group groups_[2];
};

/// The only rank: nobody is there to exchange with.
distattn_callbacks nobody() {
  distattn_callbacks callbacks = DISTATTN_CALLBACKS_INIT;
  callbacks.exchange = [](void*, std::int32_t, const distattn_transfer*, std::size_t, const distattn_transfer*,
                          std::size_t) { return 0; };
  callbacks.reaches_cuda = 1;
  return callbacks;
}

LaunchOptions launch_options_of(const distattn_launch& given) {
  LaunchOptions options;
  if (given.bootstrap != nullptr) options.bootstrap = given.bootstrap;
  if (given.transport != nullptr) options.transport = given.transport;
  options.ranks = given.ranks;
  options.timeout_s = given.timeout_s;
  return options;
}

std::unique_ptr<distattn_comm> over(std::unique_ptr<Transport> transport, Rank local_rank, int local_ranks,
                                    int cores = 0) {
  Transport* const end = transport.get();
  return std::unique_ptr<distattn_comm>(
      new distattn_comm{nullptr, std::move(transport), end, local_rank, local_ranks, cores});
}

std::unique_ptr<distattn_comm> launched(const LaunchOptions& options) {
  auto world = std::make_unique<World>(options);
  if (!world->in_process()) {
    Transport& end = world->endpoint();
    const Rank local_rank = world->local_rank();
    const int local_ranks = world->local_size(), cores = world->cores();
    return std::unique_ptr<distattn_comm>(
        new distattn_comm{std::move(world), nullptr, &end, local_rank, local_ranks, cores});
  }
  if (world->size() > 1) {
    refuse(std::to_string(world->size()) +
           " ranks without a launcher (one process is one rank here): start it with mpirun, srun or torchrun, or call "
           "distattn_run_ranks()");
  }
  return over(std::make_unique<CallbackTransport>(nobody()), 0, 1);
}

distattn_callbacks checked(const distattn_callbacks* given) {
  required(given, "callbacks");
  const distattn_callbacks callbacks = read(given, DISTATTN_CALLBACKS_INIT, "distattn_callbacks");
  if (callbacks.size < 1 || callbacks.rank < 0 || callbacks.rank >= callbacks.size) {
    refuse("rank " + std::to_string(callbacks.rank) + " of " + std::to_string(callbacks.size) +
           " (ranks count from 0): set rank and size");
  }
  if (callbacks.exchange == nullptr) refuse("exchange is null (messages need it): set the callback");
  return callbacks;
}

/// A failed body as an exception, so that the other ranks are ended too.
void check(distattn_status status, Rank rank) {
  if (status == DISTATTN_OK) return;
  const std::string message = distattn_message();
  throw BodyFailure(status, message.empty() ? "rank " + std::to_string(rank) + " returned status " +
                                                  std::to_string(status) + " (its body failed): see there"
                                            : message);
}

}  // namespace
}  // namespace distattn::c_api

using namespace distattn;

extern "C" {

distattn_status distattn_comm_from_callbacks(const distattn_callbacks* callbacks, distattn_comm** comm) {
  return c_api::guarded([&] {
    distattn_comm*& made = c_api::result(comm, "comm");
    auto transport = std::make_unique<c_api::CallbackTransport>(c_api::checked(callbacks));
    const Rank local_rank = transport->rank();
    made = c_api::over(std::move(transport), local_rank, 1).release();
  });
}

distattn_status distattn_comm_from_launcher(const distattn_launch* launch, distattn_comm** comm) {
  return c_api::guarded([&] {
    distattn_comm*& made = c_api::result(comm, "comm");
    const distattn_launch given = c_api::read(launch, DISTATTN_LAUNCH_INIT, "distattn_launch");
    made = c_api::launched(c_api::launch_options_of(given)).release();
  });
}

distattn_status distattn_comm_subgroup(distattn_comm* whole, const int32_t* members, size_t count,
                                       distattn_comm** comm) {
  return c_api::guarded([&] {
    distattn_comm*& group_comm = c_api::result(comm, "comm");
    c_api::required(whole, "whole");
    c_api::required(members, "members");
    if (const int ranks = whole->transport->size(); count > index(ranks)) {
      refuse("a group of " + std::to_string(count) + " ranks (among " + std::to_string(ranks) +
             "): list different ranks, the own among them, alike on all of them");
    }
    auto group = std::make_unique<Subgroup>(*whole->transport, std::vector<Rank>(members, members + count));
    auto made = c_api::over(std::move(group), whole->local_rank, whole->local_ranks, whole->cores);
    made->ending = whole->ending;
    group_comm = made.release();
  });
}

distattn_status distattn_comm_all_gather(distattn_comm* comm, const void* mine, const size_t* bytes, void* all) {
  return c_api::guarded([&] {
    c_api::required(comm, "comm");
    c_api::required(bytes, "bytes");
    const std::span sizes(bytes, index(comm->transport->size()));
    const std::size_t sum = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    const std::size_t own = sizes[index(comm->transport->rank())];
    if ((mine == nullptr && own > 0) || (all == nullptr && sum > 0)) {
      refuse("memory to gather is null (it is needed): pass its address, or sizes of 0");
    }
    c_api::collective(*comm->ending, [&] {
      all_gather(*comm->transport, {static_cast<const std::byte*>(mine), own}, sizes,
                 {static_cast<std::byte*>(all), sum});
    });
  });
}

distattn_status distattn_comm_abort(distattn_comm* comm, const char* reason) {
  return c_api::guarded([&] {
    c_api::required(comm, "comm");
    const Error error(ErrorKind::interrupted, reason != nullptr ? reason : "a rank ended the communicator");
    comm->ending->end(error);
    comm->transport->abort(error);
  });
}

int32_t distattn_comm_rank(const distattn_comm* comm) { return comm != nullptr ? comm->transport->rank() : -1; }

int32_t distattn_comm_size(const distattn_comm* comm) { return comm != nullptr ? comm->transport->size() : -1; }

void distattn_comm_free(distattn_comm* comm) { delete comm; }

distattn_status distattn_run_ranks(int32_t ranks, distattn_status (*body)(void* user, distattn_comm* comm),
                                   void* user) {
  return c_api::guarded([&] {
    if (body == nullptr) refuse("body is null (each rank runs it): pass a function");
    run_ranks(ranks, [&](Rank rank, Transport& transport) {
      distattn_comm comm{nullptr, nullptr, &transport, rank, ranks};
      c_api::check(body(user, &comm), rank);
    });
  });
}

}  // extern "C"

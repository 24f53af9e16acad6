#include "ucx/rank_world.hpp"

#include "backends/ucx/transport.hpp"
#include "distattn/inproc.hpp"
#include "launch/threads_meet.hpp"

namespace distattn::test {

void run_ucx_ranks(int ranks, const RankBody& body) {
  Port port(ranks);
  run_ranks(ranks, [&](Rank rank, Transport&) {
    const auto bootstrap = port.meet(rank);
    try {
      backends::ucx::UcxTransport transport(*bootstrap, UCS_MEMORY_TYPE_HOST);
      body(rank, transport);
      bootstrap->barrier();
    } catch (...) {
      bootstrap->control()->abort(as_error(std::current_exception()));
      throw;
    }
  });
}

}  // namespace distattn::test

#include "nccl/rank_world.hpp"
#include "tests/conformance/transport_world.hpp"

namespace distattn::test {

const TransportWorld& transport_world() {
  static const TransportWorld world{{2, 3, 5}, [runs = 0u](int ranks, const RankBody& body) mutable {
                                      run_nccl_ranks(ranks, body, {.seed = ++runs});
                                    }};
  return world;
}

}  // namespace distattn::test

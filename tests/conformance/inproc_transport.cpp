#include "distattn/inproc.hpp"

#include "tests/conformance/transport_world.hpp"

namespace distattn::test {

/// Every other run with delays and permutations.
const TransportWorld& transport_world() {
  static const TransportWorld world{{2, 3, 5, 8},
                                    [runs = 0](int ranks, const std::function<void(Rank, Transport&)>& body) mutable {
                                      InprocOptions options;
                                      if (++runs % 2 == 0) options.delivery_seed = static_cast<std::uint64_t>(runs);
                                      run_ranks(ranks, body, options);
                                    }};
  return world;
}

}  // namespace distattn::test

#include "distattn/launch.hpp"
#include "tests/conformance/transport_world.hpp"

namespace distattn::test {

/// The ranks are processes that a launcher started. A failure ends their run: each case needs processes of its own.
const TransportWorld& transport_world() {
  static World world({"", "ucx", 0, 20});
  static const TransportWorld described{
      {world.size()}, [](int, const std::function<void(Rank, Transport&)>& body) {
        world.run([&](Rank rank, Transport& transport, Bootstrap&) { body(rank, transport); });
      }};
  return described;
}

}  // namespace distattn::test

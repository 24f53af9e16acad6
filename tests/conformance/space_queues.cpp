/// What is queued on a device of Kokkos's spaces, and whose work it waits for.

#include <vector>

#include "backends/kokkos/spaces/streams.hpp"
#include "backends/streams/event.hpp"
#include "catch.hpp"
#include "distattn/attention.hpp"
#include "distattn/device_tensors.hpp"
#include "tests/conformance/device_world.hpp"
#include "tests/kokkos/host_as_device.hpp"
#include "tests/support/sharded.hpp"

namespace distattn::test {
namespace {

using namespace backends;

/// Of a device that Kokkos does not drive: passes when it has been asked often.
class ForeignMark final : public Mark {
 public:
  bool passed() const override { return ++asked > 5; }
  double seconds_since(const Mark&) const override { return 0; }

  mutable int asked = 0;
};

/// What a pass writes, and its tensors on the device.
struct Results {
  Results(Device& device, const Inputs& inputs, std::uint64_t dropout_seed)
      : o(static_cast<std::size_t>(inputs.q().sequence() * inputs.q().heads() * inputs.v().head_dim())),
        lse(static_cast<std::size_t>(inputs.q().sequence() * inputs.q().heads())),
        tensors(device, bindings(inputs, dropout_seed)) {}

  Bindings bindings(const Inputs& inputs, std::uint64_t dropout_seed) {
    const auto q = inputs.q();
    Bindings all;
    all.q = q;
    all.k = inputs.k();
    all.v = inputs.v();
    all.o = dense_view(o.data(), 1, q.sequence(), q.heads(), inputs.v().head_dim());
    all.lse = statistics_view(reinterpret_cast<std::byte*>(lse.data()), DType::fp32, 1, q.heads(), q.sequence());
    all.dropout_seed = dropout_seed;
    return all;
  }

  std::vector<float> o, lse;
  DeviceTensors tensors;
};

}  // namespace

TEST_CASE("A space's stream leaves it to the host to wait for the work of others") {
  for (kernels::portable::SpaceDevice* const device : {DISTATTN_HOSTS_AS_DEVICES}) {
    CAPTURE(device->name());
    device->begin(0, 1);
    SpaceStreams streams(*device, 1);
    const auto stream = streams.open_stream(StreamPriority::normal);
    const auto mark = std::make_shared<ForeignMark>();
    CHECK_FALSE(stream->wait_for(*mark));
    CHECK(mark->asked == 0);
    const Event event(std::make_shared<StreamEvent>(mark, std::make_shared<Ending>(), nullptr, "elsewhere"));
    CHECK_FALSE(backends::follow(event, *stream));
    wait_for_all({&event, 1}, *stream);
    CHECK(mark->passed());
    CHECK(stream->wait_for(*stream->mark()));
  }
}

TEST_CASE("Passes that are queued on a space drop the weights of their own seeds") {
  Problem problem = uneven_problem();
  problem.batch = 1;
  problem.dtype = DType::fp32;
  problem.seq_q = problem.seq_kv = 75;
  problem.scores.dropout = 0.5;
  const Inputs inputs(problem, 7);
  ScheduleRequest ring;
  ring.schedule = "ring";
  for (const DeviceKind& kind : device_world()) {
    if (kind.dtype != problem.dtype) continue;
    CAPTURE(kind.name);
    run_ranks(1, [&](Rank, Transport& transport) {
      const auto device = kind.make({});
      Attention attention(problem, ring, *device, transport);
      Results waiting[] = {{*device, inputs, 1}, {*device, inputs, 2}},
              queued[] = {{*device, inputs, 1}, {*device, inputs, 2}};
      for (Results& each : waiting) {
        attention.forward(each.tensors.bindings());
        each.tensors.fetch();
      }
      std::vector<Event> events;
      for (Results& each : queued) events.push_back(attention.forward(each.tensors.bindings(), Event()));
      for (const Event& each : events) each.wait();
      for (Results& each : queued) each.tensors.fetch();
      CHECK(waiting[0].o != waiting[1].o);
      for (int i = 0; i < 2; ++i) CHECK(queued[i].o == waiting[i].o);
    });
  }
}

}  // namespace distattn::test

/// A rank that computes forward and backward for ever, until it or another one fails: DISTATTN_FAULT says who fails how
/// and where, as "throw forward 3 20": in the kernels of step 3 of the 20th forward pass. It prints the moment. A fault
/// other than kill, stop and throw is left to whoever reads that: "link start", to all ranks, leaves time for it before
/// anything is sent. With "one-way" in the place of a pass, to all ranks, there are forward passes alone, in which each
/// rank sends to the next and the first one only sends.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "distattn/attention.hpp"
#include "distattn/launch.hpp"
#include "distattn/mask.hpp"
#include "distattn/registry.hpp"

namespace distattn::test {
namespace {

struct Fault {
  std::string kind, pass;
  int step = -1, call = -1;
};

Fault fault_here() {
  Fault fault;
  if (const char* const text = std::getenv("DISTATTN_FAULT")) {
    std::istringstream(text) >> fault.kind >> fault.pass >> fault.step >> fault.call;
  }
  return fault;
}

void fail(const Fault& fault) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf("%.6f\n", std::chrono::duration<double>(now).count());
  std::fflush(stdout);
  if (fault.kind == "kill") ::raise(SIGKILL);
  if (fault.kind == "stop") ::raise(SIGSTOP);
  if (fault.kind == "throw") throw std::runtime_error("a kernel failed");
}

/// Computes as another device of the host does, until it fails.
class FaultyDevice final : public Device {
 public:
  FaultyDevice(std::unique_ptr<Device> device, Fault fault) : device_(std::move(device)), fault_(std::move(fault)) {}

  std::string_view name() const override { return device_->name(); }
  MemorySpace space() const override { return device_->space(); }
  Features features(Pass pass) const override { return device_->features(pass); }
  std::string objection(const Problem& problem, Pass pass) const override { return device_->why_not(problem, pass); }
  std::unique_ptr<DeviceProgram> allocate(const Outline& outline, const RankProgram& program, Rank rank) override {
    return std::make_unique<FaultyProgram>(device_->allocate(outline, program, rank), fault_, calls_);
  }
  void abort(const Error& error) noexcept override { device_->abort(error); }

 private:
  /// In the memory of the program that computes.
  class FaultyProgram final : public DeviceProgram {
   public:
    FaultyProgram(std::unique_ptr<DeviceProgram> whole, const Fault& fault, int& calls)
        : DeviceProgram(whole->outline(), whole->program(), whole->rank(), whole->space(), whole->owner()),
          whole_(std::move(whole)),
          fault_(fault),
          calls_(calls) {}

    Event load(const Bindings& bindings) override { return whole_->load(bindings); }
    Event store(const Bindings& bindings, std::span<const Event> steps) override {
      return whole_->store(bindings, steps);
    }
    Event submit(const Step& step, std::span<const Event> after) override {
      if (name_of(outline().pass) != fault_.pass || step.number != fault_.step || ++calls_ != fault_.call) {
        return whole_->submit(step, after);
      }
      try {
        fail(fault_);
        return whole_->submit(step, after);
      } catch (...) {
        return Event::failed(std::make_exception_ptr(error_at(rank(), step, std::current_exception())));
      }
    }

   private:
    const std::unique_ptr<DeviceProgram> whole_;
    const Fault& fault_;
    int& calls_;
  };

  std::unique_ptr<Device> device_;
  Fault fault_;
  int calls_ = 0;
};

void compute(Transport& transport) {
  Fault fault = fault_here();
  const bool one_way = fault.pass == "one-way";
  if (one_way) fault.pass = "forward";
  const int heads = one_way ? 1 : 4, dim = one_way ? 16 : 32;  // small messages leave before they are asked for
  Problem problem;
  problem.seq_q = problem.seq_kv = one_way ? 96 : 256;
  problem.heads = problem.kv_heads = heads;
  problem.head_dim = problem.value_dim = dim;
  if (one_way) problem.mask = causal_mask();
  if (fault.pass == "start") {
    fail(fault);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  FaultyDevice device(make_device("reference", {1, transport.size()}), fault);
  ScheduleRequest options;
  options.schedule = one_way ? "ring" : "zigzag-ring";
  options.passes = one_way ? Passes::forward : Passes::both;
  Attention attention(problem, options, device, transport);
  const auto tokens = static_cast<std::int64_t>(attention.query_positions().size());
  std::vector<float> in(static_cast<std::size_t>(tokens * heads * dim), 0.5f);
  std::vector<float> lse(static_cast<std::size_t>(tokens * heads)), o(in.size());
  std::vector<float> dq(in.size()), dk(in.size()), dv(in.size());
  const auto view = [&](std::vector<float>& values) { return dense_view(values.data(), 1, tokens, heads, dim); };
  const Bindings bindings{.q = view(in),
                          .k = view(in),
                          .v = view(in),
                          .o = view(o),
                          .lse = statistics_view(lse.data(), 1, heads, tokens),
                          .d_o = view(in),
                          .dq = view(dq),
                          .dk = view(dk),
                          .dv = view(dv)};
  while (true) {
    attention.forward(bindings);
    if (!one_way) attention.backward(bindings);
  }
}

int run(const LaunchOptions& options) {
  try {
    World(options).run([](Rank, Transport& transport, Bootstrap&) { compute(transport); });
  } catch (const Error& error) {
    std::fprintf(stderr, "distattn: %s\n", error.what());
    return error.kind() == ErrorKind::timeout ? 4 : 3;
  }
  return 0;
}

}  // namespace
}  // namespace distattn::test

/// faulty_rank TIMEOUT --ranks N --bootstrap NAME
int main(int argc, char** argv) {
  if (argc != 6) return 2;
  return distattn::test::run({argv[5], "ucx", std::atoi(argv[3]), std::atof(argv[1])});
}

/// What every transport must do. It knows no backend: see transport_world.hpp.

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "catch.hpp"
#include "distattn/mask.hpp"
#include "tests/conformance/transport_world.hpp"
#include "tests/support/hand_made.hpp"

namespace distattn::test {
namespace {

/// Ranks may be threads, on which the test framework's checks cannot be used.
void demand(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// A program with memory, filled with what names rank, buffer and byte.
class Loaded {
 public:
  Loaded(const Outline& outline, RankProgram program, Rank rank)
      : program_(std::move(program)),
        buffers_(
            outline, program_, rank, MemorySpace::host,
            {static_cast<std::byte*>(std::aligned_alloc(buffer_alignment, slots_bytes(program_) + buffer_alignment)),
             std::free}) {
    std::memset(buffers_.memory().data(), 0xee, buffers_.memory().size());
  }

  static std::byte pattern(const Value& value, std::size_t part, std::size_t byte, int salt) {
    const std::size_t mixed =
        (index(value.segment) * 31 + part * 7 + static_cast<std::size_t>(value.group) * 3 +
         static_cast<std::size_t>(value.kind) * 13 + static_cast<std::size_t>(salt) * 101 + byte) *
        2654435761u;
    return static_cast<std::byte>(mixed >> 8 & 0xff);
  }
  void fill(BufferId buffer, int salt = 0) {
    visit(
        buffer, [&](std::byte& byte, std::byte right) { byte = right; }, salt);
  }
  bool holds(BufferId buffer, int salt = 0) {
    bool same = true;
    visit(
        buffer, [&](std::byte& byte, std::byte right) { same = same && byte == right; }, salt);
    return same;
  }
  Event submit(Transport& transport, StepId step, std::span<const Event> after = {}) {
    return transport.submit(program_.steps[index(step)], buffers_, after);
  }
  std::size_t steps() const { return program_.steps.size(); }
  std::weak_ptr<std::byte> memory() const { return buffers_.owner(); }

 private:
  template <class Visit>
  void visit(BufferId buffer, Visit visit_byte, int salt) {
    const auto parts = buffers_.parts(buffer);
    for (std::size_t part = 0; part < parts.size(); ++part) {
      for (std::size_t byte = 0; byte < parts[part].shape.bytes; ++byte) {
        visit_byte(parts[part].data[byte], pattern(buffers_.decl(buffer).value, part, byte, salt));
      }
    }
  }

  RankProgram program_;
  BufferTable buffers_;
};

Value keys_of(Rank rank) { return {ValueKind::key_value, 0, static_cast<SegmentId>(rank), -1}; }
Value queries_of(Rank rank) { return {ValueKind::query, 0, static_cast<SegmentId>(rank), -1}; }

class ManualEvent final : public Event::State {
 public:
  bool done() const override { return complete_; }
  void wait() const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return complete_.load(); });
  }
  Event::Clock::time_point ended_at() const override { return {}; }
  void complete() {
    const std::scoped_lock lock(mutex_);
    complete_ = true;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> complete_{false};
};

/// One step in which every rank sends its keys and its queries to every other, in the order (peer, value).
void all_to_all(int ranks, std::int64_t tokens, Rank rank, Transport& transport) {
  const Outline outline = block_outline(ranks, tokens);
  ProgramWriter writer(outline);
  const BufferId own_queries = writer.buffer(queries_of(rank)), own_keys = writer.buffer(keys_of(rank));
  std::vector<Op> sends, receives;
  std::vector<BufferId> arriving;
  for (Rank peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    for (const Value& value : {queries_of(peer), keys_of(peer)}) {
      arriving.push_back(writer.buffer(value));
      receives.push_back(Recv{arriving.back(), peer});
    }
    sends.insert(sends.end(), {Send{own_queries, peer}, Send{own_keys, peer}});
  }
  sends.insert(sends.end(), receives.begin(), receives.end());
  const StepId step = writer.step(Lane::near, 0, std::move(sends));
  Loaded loaded(outline, writer.take(), rank);
  loaded.fill(own_queries);
  loaded.fill(own_keys);
  loaded.submit(transport, step).wait();
  for (const BufferId buffer : arriving) demand(loaded.holds(buffer), "what arrived is not what was sent");
}

/// `rounds` steps on one lane, each sending a fresh buffer to the next rank, run `runs` times without a pause.
void relay(int ranks, int rounds, int runs, Rank rank, Transport& transport, Lane lane) {
  const Outline outline = block_outline(ranks, 3);
  const Rank next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  ProgramWriter writer(outline);
  std::vector<BufferId> out, in;
  for (int round = 0; round < rounds; ++round) {
    out.push_back(writer.buffer(keys_of(rank)));
    in.push_back(writer.buffer(keys_of(before)));
    writer.step(lane, round, {Send{out.back(), next}, Recv{in.back(), before}});
  }
  Loaded loaded(outline, writer.take(), rank);
  for (int run = 0; run < runs; ++run) {
    for (int round = 0; round < rounds; ++round)
      loaded.fill(out[static_cast<std::size_t>(round)], run * rounds + round);
    for (int round = 0; round < rounds; ++round) {
      loaded.submit(transport, static_cast<StepId>(round)).wait();
      demand(loaded.holds(in[static_cast<std::size_t>(round)], run * rounds + round),
             "a step received another step's data");
    }
  }
}

std::string failure_of(const TransportWorld& world, int ranks, const std::function<void(Rank, Transport&)>& body) {
  try {
    world.run(ranks, body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("Every byte of every value arrives, whatever the size") {
  const TransportWorld& world = transport_world();
  for (const int ranks : world.sizes) {
    for (const std::int64_t tokens : {0, 1, 7, 1000, 40000}) {
      if (ranks * tokens > 200000) continue;
      CAPTURE(ranks, tokens);
      CHECK(failure_of(world, ranks,
                       [&](Rank rank, Transport& transport) { all_to_all(ranks, tokens, rank, transport); }) == "");
    }
  }
}

TEST_CASE("Steps stay in order without a barrier between them") {
  const TransportWorld& world = transport_world();
  for (const int ranks : world.sizes) {
    CAPTURE(ranks);
    CHECK(failure_of(world, ranks,
                     [&](Rank rank, Transport& transport) { relay(ranks, 40, 5, rank, transport, Lane::near); }) == "");
  }
}

TEST_CASE("Near and far lanes do not wait for each other") {
  const TransportWorld& world = transport_world();
  for (const int ranks : world.sizes) {
    CAPTURE(ranks);
    // Rank 0 begins its near lane when its far lane has ended; the others' near lanes wait for it meanwhile.
    CHECK(failure_of(world, ranks, [&](Rank rank, Transport& transport) {
            std::exception_ptr failure;
            std::thread far([&] {
              try {
                relay(ranks, 30, 2, rank, transport, Lane::far);
              } catch (...) {
                failure = std::current_exception();
              }
            });
            if (rank == 0) far.join();
            relay(ranks, 30, 2, rank, transport, Lane::near);
            if (rank != 0) far.join();
            if (failure) std::rethrow_exception(failure);
          }) == "");
  }
}

TEST_CASE("A step starts after the events it is given") {
  const TransportWorld& world = transport_world();
  for (const int ranks : world.sizes) {
    CAPTURE(ranks);
    CHECK(failure_of(world, ranks, [&](Rank rank, Transport& transport) {
            const Outline outline = block_outline(ranks, 5);
            const Rank next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
            ProgramWriter writer(outline);
            const BufferId own = writer.buffer(keys_of(rank)), other = writer.buffer(keys_of(before));
            const StepId step = writer.step(Lane::near, 0, {Send{own, next}, Recv{other, before}});
            Loaded loaded(outline, writer.take(), rank);
            auto filled = std::make_shared<ManualEvent>();
            std::thread filler([&] {
              std::this_thread::sleep_for(std::chrono::milliseconds(3));
              loaded.fill(own);
              filled->complete();
            });
            const Event after(filled);
            const Event sent = loaded.submit(transport, step, {&after, 1});
            filler.join();
            sent.wait();
            demand(loaded.holds(other), "a message left before its event");
          }) == "");
  }
}

TEST_CASE("Memory is let go with its table, while the transport goes on") {
  const TransportWorld& world = transport_world();
  for (const int ranks : world.sizes) {
    CAPTURE(ranks);
    CHECK(failure_of(world, ranks, [&](Rank rank, Transport& transport) {
            const Outline outline = block_outline(ranks, 1000);
            const Rank next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
            ProgramWriter writer(outline);
            const BufferId own = writer.buffer(keys_of(rank)), other = writer.buffer(keys_of(before));
            const StepId step = writer.step(Lane::near, 0, {Send{own, next}, Recv{other, before}});
            std::optional<Loaded> loaded(std::in_place, outline, writer.take(), rank);
            loaded->submit(transport, step).wait();
            const std::weak_ptr<std::byte> memory = loaded->memory();
            loaded.reset();
            demand(memory.expired(), "the memory of a table that is gone is still held");
          }) == "");
  }
}

TEST_CASE("A rank that gives up ends all others, and is named") {
  const TransportWorld& world = transport_world();
  for (const int ranks : world.sizes) {
    CAPTURE(ranks);
    const std::string message = failure_of(world, ranks, [&](Rank rank, Transport& transport) {
      if (rank == 0) {
        const Error reason(ErrorKind::environment, "rank 0 is out of ink");
        transport.abort(reason);
        throw reason;
      }
      relay(ranks, 3, 1, rank, transport, Lane::near);
    });
    CHECK(message.find("rank 0") != message.npos);
  }
}

/// Rank 0's step is of another call than the others', with messages of the same sizes. Everybody's failure.
std::string failure_in_another_call(int ranks, const std::function<void(Outline&)>& change) {
  return failure_of(transport_world(), ranks, [&](Rank rank, Transport& transport) {
    relay(ranks, 2, 1, rank, transport, Lane::near);
    Outline outline = block_outline(ranks, 5);
    if (rank == 0) change(outline);
    const Rank next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    ProgramWriter writer(outline);
    const BufferId own = writer.buffer(keys_of(rank)), other = writer.buffer(keys_of(before));
    const StepId step = writer.step(Lane::near, 0, {Send{own, next}, Recv{other, before}});
    Loaded loaded(outline, writer.take(), rank);
    loaded.submit(transport, step).wait();
    relay(ranks, ranks, 1, rank, transport, Lane::near);  // those that agreed learn of it too
  });
}

TEST_CASE("Ranks in different passes are told so") {
  for (const int ranks : transport_world().sizes) {
    CAPTURE(ranks);
    const std::string message = failure_in_another_call(ranks, [](Outline& outline) { outline.pass = Pass::backward; });
    CHECK(message.find(" pass ") != message.npos);
    CHECK(message.find("different calls") != message.npos);
    CHECK(message.find('\n') == message.npos);
  }
}

TEST_CASE("Ranks in different attentions of one size are told so") {
  for (const int ranks : transport_world().sizes) {
    CAPTURE(ranks);
    const std::string message =
        failure_in_another_call(ranks, [](Outline& outline) { outline.sharding.problem.mask = causal_mask(); });
    CHECK(message.find(" attention ") != message.npos);
    CHECK(message.find("different calls") != message.npos);
  }
}

TEST_CASE("Partners that disagree about a message are told so") {
  const TransportWorld& world = transport_world();
  for (const int ranks : world.sizes) {
    CAPTURE(ranks);
    const std::string message = failure_of(world, ranks, [&](Rank rank, Transport& transport) {
      relay(ranks, 2, 1, rank, transport, Lane::near);
      const Outline outline = block_outline(ranks, rank == 0 ? 9 : 5);
      const Rank next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
      ProgramWriter writer(outline);
      const BufferId own = writer.buffer(keys_of(rank)), other = writer.buffer(keys_of(before));
      const StepId step = writer.step(Lane::near, 2, {Send{own, next}, Recv{other, before}});
      Loaded loaded(outline, writer.take(), rank);
      loaded.submit(transport, step).wait();
      relay(ranks, ranks, 1, rank, transport, Lane::near);  // those that agreed learn of it too
    });
    CHECK(message.find("rank ") != message.npos);
    CHECK(message.find("bytes") != message.npos);
  }
}

}  // namespace
}  // namespace distattn::test

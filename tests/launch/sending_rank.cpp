/// One of two ranks between which a message goes to and fro, each way a step of its own: rank 0 prints the seconds of
/// one way, the mean of a round.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "distattn/launch.hpp"
#include "tests/support/hand_made.hpp"

namespace distattn::test {
namespace {

constexpr std::int64_t bytes_per_token = 8 * 4;

/// Step 0 goes from rank 0 to rank 1, step 1 back.
RankProgram to_and_fro(const Outline& outline, Rank rank) {
  ProgramWriter writer(outline);
  for (const Rank sender : {0, 1}) {
    const BufferId buffer = writer.buffer(Value{ValueKind::query, 0, static_cast<SegmentId>(sender), -1});
    if (sender == rank)
      writer.step(Lane::near, sender, {Send{buffer, 1 - rank}});
    else
      writer.step(Lane::near, sender, {Recv{buffer, sender}});
  }
  return writer.take();
}

void measure(std::int64_t bytes, int times, Rank rank, Transport& transport) {
  const Outline outline = block_outline(2, bytes / bytes_per_token);
  const RankProgram program = to_and_fro(outline, rank);
  std::size_t memory = 64;
  for (const std::size_t slot : program.slots) memory += slot;
  BufferTable buffers(outline, program, rank, MemorySpace::host,
                      {static_cast<std::byte*>(std::aligned_alloc(buffer_alignment, memory)), std::free});
  const auto round = [&](int count) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      for (const Step& step : program.steps) transport.submit(step, buffers, {}).wait();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / (2 * count);
  };
  round(times / 10 + 1);
  const double one_way_s = round(times);
  if (rank == 0) std::printf("%.9f\n", one_way_s);
}

}  // namespace
}  // namespace distattn::test

/// sending_rank BYTES TIMES --ranks 2 --bootstrap NAME
int main(int argc, char** argv) {
  using namespace distattn;
  if (argc != 7 || std::atoi(argv[4]) != 2) return 2;
  try {
    World({argv[6], "ucx", 2, 60}).run([&](Rank rank, Transport& transport, Bootstrap&) {
      test::measure(std::atoll(argv[1]), std::atoi(argv[2]), rank, transport);
    });
  } catch (const Error& error) {
    std::fprintf(stderr, "sending_rank: %s\n", error.what());
    return 3;
  }
  return 0;
}

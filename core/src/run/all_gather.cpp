#include "distattn/all_gather.hpp"

#include <cstring>
#include <numeric>

#include <fmt/core.h>

#include "core/src/run/pass_queue.hpp"
#include "core/src/schedule/aligned.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

constexpr std::size_t element = sizeof(float);

std::size_t padded(std::size_t bytes) { return (bytes + element - 1) / element * element; }

void check(const Transport& transport, std::span<const std::byte> mine, std::span<const std::size_t> bytes,
           std::span<std::byte> all) {
  const std::size_t ranks = index(transport.size()), rank = index(transport.rank());
  if (bytes.size() != ranks) {
    refuse(fmt::format("{} sizes for {} ranks (each rank gives its own): list one for each", bytes.size(), ranks));
  }
  const std::size_t sum = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
  if (mine.size() != bytes[rank] || all.size() != sum) {
    refuse(fmt::format("rank {} gives {} bytes and takes {} (its sizes say {} and {}): list what each rank gives", rank,
                       mine.size(), all.size(), bytes[rank], sum));
  }
  if (ranks > 1 && !transport.reaches(MemorySpace::host)) {
    refuse(fmt::format("{} does not reach host memory (what is gathered lies there): choose another transport",
                       transport.name()));
  }
}

/// Rank r's bytes are the queries of a segment that it owns, of one element each.
Outline outline_of(std::span<const std::size_t> bytes) {
  Outline outline;
  outline.name = "all-gather";
  Sharding& sharding = outline.sharding;
  sharding.ranks = static_cast<int>(bytes.size());
  std::int64_t first = 0;
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    const auto elements = static_cast<std::int64_t>(padded(bytes[rank]) / element);
    sharding.queries.push_back({{first, elements, 1}, static_cast<Rank>(rank)});
    first += elements;
  }
  sharding.keys = sharding.queries;
  sharding.problem.seq_q = sharding.problem.seq_kv = first;
  sharding.problem.head_dim = sharding.problem.value_dim = 1;
  sharding.groups = {{0, 1, 0, 1}};
  return outline;
}

/// A buffer and a slot for each rank's bytes, and one step on the near lane, which reaches every rank.
RankProgram program_of(std::span<const std::size_t> bytes, Rank own) {
  RankProgram program;
  Step step;
  step.lane = Lane::near;
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    const auto peer = static_cast<Rank>(rank);
    program.buffers.push_back({Value{ValueKind::query, 0, SegmentId{peer}}, DType::fp32, padded(bytes[rank]), peer});
    program.slots.push_back(padded(bytes[rank]));
    if (peer == own) continue;
    if (bytes[index(own)] > 0) step.ops.push_back(Send{BufferId{own}, peer});
    if (bytes[rank] > 0) step.ops.push_back(Recv{BufferId{peer}, peer});
  }
  program.steps.push_back(std::move(step));
  return program;
}

}  // namespace

void all_gather(Transport& transport, std::span<const std::byte> mine, std::span<const std::size_t> bytes,
                std::span<std::byte> all) {
  check(transport, mine, bytes, all);
  await_passes(transport);
  const Outline outline = outline_of(bytes);
  const RankProgram program = program_of(bytes, transport.rank());
  BufferTable buffers(outline, program, transport.rank(), MemorySpace::host, allocate_aligned(slots_bytes(program)));
  const auto place = [&](std::size_t rank) { return buffers.parts(BufferId{static_cast<int>(rank)})[0].data; };
  if (!mine.empty()) std::memcpy(place(index(transport.rank())), mine.data(), mine.size());
  try {
    transport.resting();
    if (!program.steps.front().ops.empty()) transport.submit(program.steps.front(), buffers, {}).wait();
    transport.computing(-1);
  } catch (...) {
    transport.abort(as_error(std::current_exception()));
    throw;
  }
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < bytes.size(); at += bytes[rank++]) {
    if (bytes[rank] > 0) std::memcpy(&all[at], place(rank), bytes[rank]);
  }
}

}  // namespace distattn

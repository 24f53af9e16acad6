#include "core/src/run/agreement.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>

#include <fmt/core.h>

#include "core/src/schedule/aligned.hpp"

namespace distattn {

struct Agreement::Verdict {
  std::uint64_t fingerprint = 0;
  Routes routes;
  std::uint64_t layout_bytes = 0;  // which follow in a message of their own
  ErrorKind kind{};
  bool failed = false;
  std::array<char, AttentionPlan::longest_name + 1> text{};  // the schedule, or the failure

  void write(std::string_view words) { words.copy(text.data(), text.size() - 1); }
};

namespace {

constexpr std::size_t element_bytes = sizeof(float);
constexpr std::size_t most_bytes = std::size_t{1} << 32;

std::size_t elements_of(std::size_t bytes) { return (bytes + element_bytes - 1) / element_bytes; }

/// One token of rank 0's, whose query is the message.
Outline message_outline(int ranks, std::size_t bytes) {
  Outline outline;
  outline.name = "agreement";
  Sharding& sharding = outline.sharding;
  sharding.problem.seq_q = sharding.problem.seq_kv = 1;
  sharding.problem.head_dim = sharding.problem.value_dim = static_cast<int>(elements_of(bytes));
  sharding.ranks = ranks;
  sharding.queries = sharding.keys = {{{0, 1, 1}, 0}};
  sharding.groups = {{0, 1, 0, 1}};
  return outline;
}

/// Rank 0 sends it to all others on the near lane, which reaches every rank: what is far is part of the plan.
RankProgram message_program(int ranks, Rank rank, std::size_t bytes) {
  Step step;
  step.lane = Lane::near;
  for (Rank peer = 1; rank == 0 && peer < ranks; ++peer) step.ops.push_back(Send{BufferId{0}, peer});
  if (rank != 0) step.ops.push_back(Recv{BufferId{0}, 0});
  RankProgram program;
  const std::size_t frame_bytes = elements_of(bytes) * element_bytes;
  program.buffers = {{Value{}, DType::fp32, frame_bytes, 0}};
  program.slots = {frame_bytes};
  program.steps.push_back(std::move(step));
  return program;
}

/// Of the memory that the run's messages lie in, as far as the transport reaches it.
std::unique_ptr<BufferTable> message_buffers(const Outline& outline, const RankProgram& program, Device& device,
                                             const Transport& transport) {
  if (device.space() != MemorySpace::host && transport.reaches(device.space()))
    return device.allocate(outline, program, transport.rank());
  return std::make_unique<BufferTable>(outline, program, transport.rank(), MemorySpace::host,
                                       allocate_aligned(slots_bytes(program)));
}

}  // namespace

bool Agreement::possible() const {
  return transport_.size() > 1 && (transport_.reaches(MemorySpace::host) || transport_.reaches(device_.space()));
}

void Agreement::exchange(Verdict& verdict) {
  static_assert(std::is_trivially_copyable_v<Verdict>);
  exchange(std::as_writable_bytes(std::span(&verdict, 1)));
}

void Agreement::exchange(std::span<std::byte> bytes) {
  DISTATTN_EXPECT(possible() && bytes.size() <= most_bytes);
  const Outline outline = message_outline(transport_.size(), bytes.size());
  const RankProgram program = message_program(transport_.size(), transport_.rank(), bytes.size());
  const auto buffers = message_buffers(outline, program, device_, transport_);
  std::byte* const data = buffers->parts(BufferId{0})[0].data;
  try {
    if (transport_.rank() == 0) buffers->copy(data, bytes.data(), bytes.size());
    transport_.resting();
    transport_.submit(program.steps.front(), *buffers, {}).wait();
    transport_.computing(-1);
    if (transport_.rank() != 0) buffers->copy(bytes.data(), data, bytes.size());
  } catch (...) {
    transport_.abort(as_error(std::current_exception()));
    throw;
  }
}

void Agreement::announce(const Decision& decision) {
  Verdict verdict;
  verdict.fingerprint = decision.fingerprint;
  verdict.routes = decision.routes;
  DISTATTN_EXPECT(decision.schedule.size() <= AttentionPlan::longest_name);
  verdict.write(decision.schedule);
  std::string layout = decision.layout;
  verdict.layout_bytes = layout.size();
  exchange(verdict);
  if (!layout.empty()) exchange(std::as_writable_bytes(std::span(layout)));
}

void Agreement::announce(const Error& failure) {
  Verdict verdict;
  verdict.failed = true;
  verdict.kind = failure.kind();
  verdict.write(failure.what());
  exchange(verdict);
}

Agreement::Decision Agreement::hear() {
  Verdict verdict;
  exchange(verdict);
  if (verdict.failed) throw Error(verdict.kind, verdict.text.data());
  std::string layout(verdict.layout_bytes, '\0');
  if (!layout.empty()) exchange(std::as_writable_bytes(std::span(layout)));
  return {verdict.fingerprint, verdict.text.data(), verdict.routes, std::move(layout)};
}

void Agreement::compare(const Decision& first, std::uint64_t mine) {
  if (first.fingerprint == mine) return;
  const Error error(ErrorKind::peer,
                    fmt::format("rank {} differs from rank 0 in its plan (problem, schedule, mode, routes and version "
                                "make one): give all ranks the same",
                                transport_.rank()));
  transport_.abort(error);
  throw error;
}

}  // namespace distattn

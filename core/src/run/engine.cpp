#include "distattn/engine.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include <fmt/core.h>

#include "core/src/schedule/aligned.hpp"
#include "core/src/schedule/digest.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// Without what differs between ranks, as the owners of what serving receives do.
std::uint64_t call_of(const Outline& outline) {
  Digest digest;
  digest.add(outline.pass);
  digest.add(outline.mode);
  digest.add(outline.sharding.ranks);
  digest.add(outline.sharding.problem);
  for (const char letter : outline.name) digest.add(letter);
  return digest.value();
}

}  // namespace

std::string Device::why_not(const Problem& problem, Pass pass) const {
  const std::string why = objection(problem, pass);
  return why.empty() ? why_missing(name(), features(pass), features_of(problem)) : why;
}

std::shared_ptr<std::byte> Device::allocate_tensor(std::size_t bytes) {
  DISTATTN_EXPECT(space() == MemorySpace::host);
  return allocate_aligned(bytes);
}

void Device::copy(std::byte* into, const std::byte* from, std::size_t bytes) {
  DISTATTN_EXPECT(space() == MemorySpace::host);
  std::copy_n(from, bytes, into);
}

std::size_t slots_bytes(const RankProgram& program) {
  std::size_t bytes = 0;
  for (const std::size_t slot : program.slots) bytes += aligned(slot);
  return bytes;
}

BufferTable::BufferTable(const Outline& outline, const RankProgram& program, Rank rank, MemorySpace space,
                         std::shared_ptr<std::byte> memory)
    : outline_(&outline),
      program_(&program),
      rank_(rank),
      call_(call_of(outline)),
      space_(space),
      memory_(std::move(memory)),
      bytes_(slots_bytes(program)) {
  std::vector<std::size_t> starts;
  starts.reserve(program.slots.size());
  std::size_t next = 0;
  for (const std::size_t slot : program.slots) {
    starts.push_back(next);
    next += aligned(slot);
  }
  where_.reserve(program.buffers.size());
  for (const BufferDecl& decl : program.buffers) {
    const auto slot = index(decl.slot);
    DISTATTN_EXPECT(slot < starts.size() && decl.bytes <= program.slots[slot]);
    const PartShapes shapes = parts_of(outline, decl.value, decl.dtype);
    where_.push_back({parts_.size(), shapes.size()});
    for (const PartShape& shape : shapes) parts_.push_back({memory_.get() + starts[slot] + shape.offset, shape});
  }
}

void BufferTable::copy(std::byte* into, const std::byte* from, std::size_t bytes) {
  DISTATTN_EXPECT(space_ == MemorySpace::host);
  std::memcpy(into, from, bytes);
}

std::size_t BufferTable::index_of(const Step& step) const {
  const std::vector<Step>& steps = program_->steps;
  const Step *first = steps.data(), *end = first + steps.size();
  if (std::greater_equal<>()(&step, first) && std::less<>()(&step, end)) {
    return index(&step - first);
  }
  const auto original = std::find_if(steps.begin(), steps.end(), [&](const Step& own) {
    return own.number == step.number && own.lane == step.lane && own.due == step.due;
  });
  DISTATTN_EXPECT(original != steps.end());
  return index(original - steps.begin());
}

void* BufferTable::kept_for(const void* keeper, const std::function<std::shared_ptr<void>()>& make) {
  const std::scoped_lock lock(kept_mutex_);
  auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.keeper == keeper; });
  if (found == kept_.end()) found = kept_.insert(kept_.end(), {keeper, make()});
  return found->what.get();
}

std::string place_of(Rank rank, const Step& step) {
  return fmt::format("rank {}, step {}, {} lane", rank, step.number, name_of(step.lane));
}

Error error_at(Rank rank, const Step& step, const std::exception_ptr& cause) {
  const Error error = as_error(cause);
  return {error.kind(), fmt::format("{}: {}", place_of(rank, step), error.what())};
}

}  // namespace distattn

#include "backends/nccl/call_marks.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::nccl {
namespace {

constexpr std::size_t place_of_rank(Rank rank) { return (index(rank) + 1) * CallMarks::bytes; }

}  // namespace

CallMarks::CallMarks(cuda::Driver& driver, int size)
    : on_gpu_(driver.allocate(place_of_rank(size), MemorySpace::cuda)),
      on_host_(driver.allocate(place_of_rank(size), MemorySpace::host)),
      told_(index(size)),
      heard_(index(size)) {}

/// What the last pass copied from here has been read: a pass ends when all of its exchanges have.
void CallMarks::begin(const BufferTable& buffers, cuda::Stream& stream) {
  call_ = buffers.call();
  std::memcpy(on_host_.get(), &call_, bytes);
  stream.copy(on_gpu_.get(), on_host_.get(), bytes);
  std::fill(told_.begin(), told_.end(), 0);
  std::fill(heard_.begin(), heard_.end(), 0);
}

std::span<const CallMarks::Mark> CallMarks::of(const Step& step) {
  marks_.clear();
  for (const Op& op : step.ops) {
    if (const auto* send = std::get_if<Send>(&op)) add(true, send->to);
    if (const auto* receive = std::get_if<Recv>(&op)) add(false, receive->from);
  }
  return marks_;
}

void CallMarks::add(bool outgoing, Rank peer) {
  char& known = (outgoing ? told_ : heard_)[index(peer)];
  if (std::exchange(known, 1) != 0) return;
  marks_.push_back({outgoing, peer, on_gpu_.get() + (outgoing ? 0 : place_of_rank(peer))});
}

std::shared_ptr<const CallMarks::Arrived> CallMarks::fetch(cuda::Stream& stream) {
  std::vector<Rank> from;
  for (const Mark& mark : marks_) {
    if (mark.outgoing) continue;
    stream.copy(on_host_.get() + place_of_rank(mark.peer), mark.data, bytes);
    from.push_back(mark.peer);
  }
  return from.empty() ? nullptr : std::make_shared<const Arrived>(call_, on_host_, std::move(from));
}

void CallMarks::Arrived::compare(Rank rank) const {
  for (const Rank peer : from_) {
    std::uint64_t theirs = 0;
    std::memcpy(&theirs, numbers_.get() + place_of_rank(peer), bytes);
    if (theirs == own_) continue;
    throw Error(ErrorKind::peer,
                fmt::format("rank {} is in another pass or attention than rank {} (they make different calls): make "
                            "the same calls on all ranks, in the same order",
                            peer, rank));
  }
}

}  // namespace distattn::backends::nccl

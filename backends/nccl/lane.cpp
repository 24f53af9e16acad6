#include "backends/nccl/lane.hpp"

#include <algorithm>
#include <numeric>

#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::nccl {

LaneCommunicators::LaneCommunicators(const Library& library, cuda::Driver& driver, const ncclUniqueId& id, Rank rank,
                                     int size, const Watch& watch)
    : library_(library),
      driver_(driver),
      rank_(rank),
      size_(size),
      marks_(driver, size),
      stream_(driver.make_stream(StreamPriority::high)),
      whole_(library, driver, id, rank, size, watch) {}

std::shared_ptr<const CallMarks::Arrived> LaneCommunicators::issue(const Step& step, const BufferTable& buffers,
                                                                   const Watch& watch) {
  if (begins_pass(step, buffers)) marks_.begin(buffers, *stream_);
  const std::vector<Row> rows = rows_of(step);
  std::vector<BufferId> gathered;
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && rows[end] == rows[begin]) ++end;
    const std::span<const Gather> gathers(step.gathers.data() + begin, end - begin);
    for (const Gather& gather : gathers) {
      gathered.insert(gathered.end(), gather.buffers.begin(), gather.buffers.end());
    }
    const auto calls = [&](ncclComm_t comm) {
      ncclResult_t status = ncclSuccess;
      for (const Gather& gather : gathers) {
        if (status == ncclSuccess) status = add_gather(gather, buffers, comm);
      }
      return status;
    };
    communicator_of(rows[begin], watch).issue(calls, watch);
  }
  std::sort(gathered.begin(), gathered.end());
  const std::span<const Packet> packets = exchange_.collect(step, buffers, gathered);
  const std::span<const CallMarks::Mark> marks = marks_.of(step);
  if (packets.empty() && marks.empty()) return nullptr;
  const auto calls = [&](ncclComm_t comm) {
    const ncclResult_t status = add_marks(marks, comm);
    return status == ncclSuccess ? add_messages(packets, comm) : status;
  };
  whole_.issue(calls, watch);
  return marks_.fetch(*stream_);
}

/// The members of each of the step's gathers, called as this transport calls them: a group's step names ranks of the
/// whole, while owners are ranks of the group.
std::vector<LaneCommunicators::Row> LaneCommunicators::rows_of(const Step& step) const {
  std::vector<Row> rows;
  if (step.gathers.empty()) return rows;
  std::map<BufferId, Rank> senders;
  for (const Op& op : step.ops) {
    if (const auto* receive = std::get_if<Recv>(&op)) senders[receive->into] = receive->from;
  }
  for (const Gather& gather : step.gathers) {
    Row& row = rows.emplace_back();
    for (const BufferId buffer : gather.buffers) {
      const auto sender = senders.find(buffer);
      row.push_back(sender != senders.end() ? sender->second : rank_);
    }
  }
  return rows;
}

Communicator& LaneCommunicators::communicator_of(const Row& row, const Watch& watch) {
  Row everybody(index(size_));
  std::iota(everybody.begin(), everybody.end(), 0);
  if (row == everybody) return whole_;
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = rows_.find(row); found != rows_.end()) return *found->second;
  }
  share_id(row, watch);
  const auto own = std::find(row.begin(), row.end(), rank_);
  DISTATTN_EXPECT(own != row.end());
  // Not under the lock, which an ending takes: the other members may be long in coming.
  auto made = std::make_unique<Communicator>(library_, driver_, id_, static_cast<Rank>(own - row.begin()),
                                             static_cast<int>(row.size()), watch);
  const std::scoped_lock lock(mutex_);
  return *(rows_[row] = std::move(made));
}

/// Drawn by the row's first member for all. Other ranks know nothing of the row, so it goes over NCCL itself.
void LaneCommunicators::share_id(const Row& row, const Watch& watch) {
  const bool draws = row.front() == rank_;
  if (!id_on_gpu_) id_on_gpu_ = driver_.allocate(sizeof id_, MemorySpace::cuda);
  if (draws) {
    library_.check(library_.get_unique_id(&id_), "make an id");
    stream_->copy(id_on_gpu_.get(), &id_, sizeof id_);
  }
  const auto calls = [&](ncclComm_t comm) {
    if (!draws) return library_.recv(id_on_gpu_.get(), sizeof id_, ncclInt8, row.front(), comm, handle());
    ncclResult_t status = ncclSuccess;
    for (std::size_t member = 1; member < row.size() && status == ncclSuccess; ++member) {
      status = library_.send(id_on_gpu_.get(), sizeof id_, ncclInt8, row[member], comm, handle());
    }
    return status;
  };
  whole_.issue(calls, watch);
  wait_on_host(*stream_->mark(), watch);
  if (draws) return;
  // Not sooner: copying to memory that is not pinned would wait, unwatched, for a member that may never come.
  stream_->copy(&id_, id_on_gpu_.get(), sizeof id_);
  wait_on_host(*stream_->mark(), watch);
}

/// Whole slots travel, what lies unused at their ends included.
ncclResult_t LaneCommunicators::add_gather(const Gather& gather, const BufferTable& buffers, ncclComm_t comm) const {
  const auto start_of = [&](std::size_t member) { return buffers.parts(gather.buffers[member]).front().data; };
  std::byte* const first = start_of(0);
  const std::ptrdiff_t stride = start_of(1) - first;
  const std::byte* own = nullptr;
  for (std::size_t member = 0; member < gather.buffers.size(); ++member) {
    DISTATTN_EXPECT(start_of(member) == first + static_cast<std::ptrdiff_t>(member) * stride);
    if (owner_of(buffers.outline(), buffers.decl(gather.buffers[member]).value) == buffers.rank()) {
      own = start_of(member);
    }
  }
  DISTATTN_EXPECT(own != nullptr);
  return library_.all_gather(own, first, index(stride), ncclInt8, comm, handle());
}

ncclResult_t LaneCommunicators::add_message(bool outgoing, Rank peer, std::span<std::byte> memory,
                                            ncclComm_t comm) const {
  return outgoing ? library_.send(memory.data(), memory.size(), ncclInt8, peer, comm, handle())
                  : library_.recv(memory.data(), memory.size(), ncclInt8, peer, comm, handle());
}

ncclResult_t LaneCommunicators::add_messages(std::span<const Packet> packets, ncclComm_t comm) const {
  for (const Packet& packet : packets) {
    for (const std::span<std::byte> piece : packet.pieces) {
      const ncclResult_t status = add_message(packet.outgoing, packet.peer, piece, comm);
      if (status != ncclSuccess) return status;
    }
  }
  return ncclSuccess;
}

ncclResult_t LaneCommunicators::add_marks(std::span<const CallMarks::Mark> marks, ncclComm_t comm) const {
  for (const CallMarks::Mark& mark : marks) {
    const ncclResult_t status = add_message(mark.outgoing, mark.peer, {mark.data, CallMarks::bytes}, comm);
    if (status != ncclSuccess) return status;
  }
  return ncclSuccess;
}

std::string LaneCommunicators::fault() {
  for (Communicator* communicator : all()) {
    if (std::string fault = communicator->fault(); !fault.empty()) return fault;
  }
  return "";
}

bool LaneCommunicators::finalize(const Watch& watch) noexcept {
  bool all_ended = true;
  for (Communicator* communicator : all()) all_ended = all_ended && communicator->finalize(watch);
  return all_ended;
}

std::vector<Communicator*> LaneCommunicators::all() {
  std::vector<Communicator*> all{&whole_};
  const std::scoped_lock lock(mutex_);
  for (auto& [row, communicator] : rows_) all.push_back(communicator.get());
  return all;
}

}  // namespace distattn::backends::nccl

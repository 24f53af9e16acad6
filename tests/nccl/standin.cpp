/// A library with NCCL's calls for ranks that are threads of one process, on streams of the emulated GPU.
///
/// It is as strict as a GPU that NCCL's kernels fill: a rank's groups run one after the other, over all of its
/// communicators, in the order in which they were handed over or, if it is told so, in which their streams come to
/// them. Ranks with different orders hang, and so do those of which one gathers what another sends and receives.
/// Descriptions: NCCL's user guide, "Using multiple NCCL communicators concurrently" and NCCL_LAUNCH_ORDER_IMPLICIT.

#include "nccl/standin.hpp"

#include <nccl.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "simt/queue.hpp"

namespace {

struct Group;

struct Message {
  bool outgoing = false;
  void* data = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  bool gathered = false;
  Group* group = nullptr;
};

/// Messages from one rank to another that still wait for their partner.
struct Channel {
  std::deque<Message> sent, awaited;
};

/// Everything is guarded by one lock: this is no place for speed.
std::mutex mutex;
std::condition_variable changed;
std::map<const void*, int> groups_started, groups_ended;  // by GPU
std::map<int, int> gathers;                               // by the communicator's size
int failing_rank = 0, groups_to_failure = 0, refused_rank = -1;
bool fails_silently = false, keeps_order = true, holds_ends = false;
std::map<const void*, bool> busy;  // by GPU
int ids = 0, aborts = 0, ending = 0;

}  // namespace

struct ncclComm {
  int rank = 0, size = 0, id = 0;
  ncclResult_t error = ncclSuccess;
  int polls_until_ready = 0;
  const void* gpu = nullptr;  // once it has started a group
  bool aborted = false, finalized = false;
  int groups_under_way = 0;
};

namespace {

struct Group {
  ncclComm* comm = nullptr;
  simt::Queue* queue = nullptr;
  int turn = 0;
  bool broken = false;
  std::size_t open = 0;
  std::vector<Message> messages = {};
};

std::map<std::tuple<int, bool, int, int>, Channel> channels;  // by communicator, whether gathered, from, to
thread_local bool grouping = false;
thread_local std::vector<Group> collecting;

Channel& channel_of(const Group& group, const Message& message) {
  const int from = message.outgoing ? group.comm->rank : message.peer;
  const int to = message.outgoing ? message.peer : group.comm->rank;
  return channels[{group.comm->id, message.gathered, from, to}];
}

void match(Channel& channel) {
  while (!channel.sent.empty() && !channel.awaited.empty()) {
    const Message from = channel.sent.front(), into = channel.awaited.front();
    channel.sent.pop_front();
    channel.awaited.pop_front();
    if (from.bytes != into.bytes) {
      from.group->comm->error = into.group->comm->error = ncclInvalidUsage;
      return;
    }
    std::memcpy(into.data, from.data, from.bytes);
    --from.group->open;
    --into.group->open;
  }
}

void forget(Group& group) {
  for (const Message& message : group.messages) {
    Channel& channel = channel_of(group, message);
    std::erase_if(message.outgoing ? channel.sent : channel.awaited,
                  [&](const Message& other) { return other.group == &group; });
  }
}

/// The kernel of a group.
void run(Group& group) {
  std::unique_lock lock(mutex);
  ncclComm& comm = *group.comm;
  const bool in_order = keeps_order;
  changed.wait(lock,
               [&] { return comm.aborted || (in_order ? groups_ended[comm.gpu] == group.turn : !busy[comm.gpu]); });
  const bool begun = !comm.aborted;
  if (begun) busy[comm.gpu] = true;
  if (begun && !group.broken) {
    group.open = group.messages.size();
    for (Message& message : group.messages) {
      message.group = &group;
      Channel& channel = channel_of(group, message);
      (message.outgoing ? channel.sent : channel.awaited).push_back(message);
      match(channel);
    }
    changed.notify_all();
  }
  changed.wait(lock, [&] { return comm.aborted || (!group.broken && group.open == 0); });
  forget(group);
  if (begun) busy[comm.gpu] = false;
  ++groups_ended[comm.gpu];
  --comm.groups_under_way;
  changed.notify_all();
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, Message message) {
  if (!grouping || comm == nullptr) return ncclInvalidUsage;
  auto* const queue = reinterpret_cast<simt::Queue*>(stream);
  if (collecting.empty() || collecting.back().comm != comm) collecting.push_back({.comm = comm, .queue = queue});
  collecting.back().messages.push_back(message);
  return ncclSuccess;
}

/// As the real one, which lets go when the other ranks of the machine do.
void release(ncclComm_t comm, std::unique_lock<std::mutex>& lock) {
  changed.wait(lock, [] { return !holds_ends; });
  delete comm;
  --ending;
  changed.notify_all();
}

}  // namespace

extern "C" {

void standin_keep_order(bool keep) {
  const std::scoped_lock lock(mutex);
  keeps_order = keep;
}

void standin_hold_ends(bool hold) {
  std::unique_lock lock(mutex);
  holds_ends = hold;
  changed.notify_all();
  if (!hold) changed.wait(lock, [] { return ending == 0; });
}

void standin_fail(int rank, int group, bool silent) {
  const std::scoped_lock lock(mutex);
  failing_rank = rank;
  groups_to_failure = group;
  fails_silently = silent;
}

void standin_refuse(int rank) {
  const std::scoped_lock lock(mutex);
  refused_rank = rank;
}

int standin_gathers(int ranks) {
  const std::scoped_lock lock(mutex);
  return gathers[ranks];
}

int standin_aborts() {
  const std::scoped_lock lock(mutex);
  return aborts;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::scoped_lock lock(mutex);
  ++ids;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &ids, sizeof ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0 || rank < 0 || rank >= size) return ncclInvalidArgument;
  const std::scoped_lock lock(mutex);
  if (rank == refused_rank) return ncclSystemError;
  *comm = new ncclComm{.rank = rank, .size = size, .polls_until_ready = 3};
  std::memcpy(&(*comm)->id, &id, sizeof(int));
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const std::scoped_lock lock(mutex);
  *error = comm->error;
  if (comm->error == ncclSuccess && comm->polls_until_ready > 0) {
    --comm->polls_until_ready;
    *error = ncclInProgress;
  }
  if (comm->error == ncclSuccess && comm->finalized && comm->groups_under_way > 0) *error = ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::scoped_lock lock(mutex);
  if (comm->finalized || comm->polls_until_ready > 0) return ncclInvalidUsage;
  comm->finalized = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::unique_lock lock(mutex);
  if (!comm->finalized || comm->groups_under_way > 0) return ncclInvalidUsage;
  ++ending;
  release(comm, lock);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::unique_lock lock(mutex);
  ++aborts;
  ++ending;
  comm->aborted = true;
  changed.notify_all();
  // As the real one, which frees memory and so waits for the whole GPU, also for groups of other communicators.
  changed.wait(lock, [&] { return groups_ended[comm->gpu] == groups_started[comm->gpu]; });
  release(comm, lock);
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (type != ncclInt8) return ncclInvalidArgument;
  return add(comm, stream, {.outgoing = true, .data = const_cast<void*>(data), .bytes = count, .peer = peer});
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclInt8) return ncclInvalidArgument;
  return add(comm, stream, {.outgoing = false, .data = data, .bytes = count, .peer = peer});
}

ncclResult_t ncclAllGather(const void* mine, void* all, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  if (type != ncclInt8 || comm == nullptr) return ncclInvalidArgument;
  const auto of = [&](int rank) { return static_cast<std::byte*>(all) + static_cast<std::size_t>(rank) * count; };
  if (mine != of(comm->rank)) return ncclInvalidArgument;  // NCCL would copy it; nobody here asks for that
  {
    const std::scoped_lock lock(mutex);
    ++gathers[comm->size];
  }
  for (int peer = 0; peer < comm->size; ++peer) {
    if (peer == comm->rank) continue;
    for (const bool outgoing : {true, false}) {
      const Message message{outgoing, of(outgoing ? comm->rank : peer), count, peer, true};
      if (const ncclResult_t status = add(comm, stream, message); status != ncclSuccess) return status;
    }
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  if (grouping) return ncclInvalidUsage;
  grouping = true;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (!grouping) return ncclInvalidUsage;
  grouping = false;
  std::vector<Group> groups;
  groups.swap(collecting);
  for (Group& collected : groups) {
    const auto group = std::make_shared<Group>(std::move(collected));
    const std::scoped_lock lock(mutex);
    ncclComm& comm = *group->comm;
    if (comm.polls_until_ready > 0) return ncclInvalidUsage;  // the last call has not taken effect yet
    comm.gpu = group->queue->gpu();
    group->turn = groups_started[comm.gpu]++;
    ++comm.groups_under_way;
    comm.polls_until_ready = 2;
    if (comm.rank == failing_rank && groups_to_failure > 0 && --groups_to_failure == 0) {
      group->broken = true;
      if (!fails_silently) comm.error = ncclRemoteError;
    }
    group->queue->submit([group] { run(*group); });
  }
  return ncclInProgress;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclSystemError:
      return "a system error";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "some other error";
  }
}

const char* ncclGetLastError(ncclComm_t) { return "said by the stand-in"; }
}

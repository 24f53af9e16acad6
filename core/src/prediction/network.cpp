#include "core/src/prediction/network.hpp"

#include <algorithm>
#include <tuple>

#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// What a group is called on both sides.
auto key_of(const ProgramSketch::Step& step) { return std::tuple(step.number, step.lane, step.due); }

}  // namespace

Network::Network(std::span<const ProgramSketch> ranks, std::span<const std::size_t> first, const Machine& machine)
    : machine_(machine),
      shared_(machine.far_owner == LinkOwner::node && machine.nodes > 1),
      copies_near_(machine.cores > 0) {
  add_groups(ranks, first);
  match(ranks, first);
  if (shared_) order_shared_ports(ranks, first);
}

/// Groups stand by rank, then by key.
void Network::add_groups(std::span<const ProgramSketch> ranks, std::span<const std::size_t> first) {
  group_of_step_.resize(ranks.empty() ? 0 : first.back() + ranks.back().steps.size());
  std::vector<std::size_t> exchanges;
  for (const ProgramSketch& sketch : ranks) {
    exchanges.clear();
    for (std::size_t s = 0; s < sketch.steps.size(); ++s) {
      if (sketch.steps[s].lane != Lane::compute) exchanges.push_back(s);
    }
    std::sort(exchanges.begin(), exchanges.end(),
              [&](std::size_t a, std::size_t b) { return key_of(sketch.steps[a]) < key_of(sketch.steps[b]); });
    for (const std::size_t s : exchanges) {
      Group group;
      group.step = first[index(sketch.rank)] + s;
      group.rank = sketch.rank;
      group.sends = group.sends_open = static_cast<std::uint32_t>(sketch.sends_of(s).size());
      group.receives = group.receives_open = static_cast<std::uint32_t>(sketch.receives_of(s).size());
      group_of_step_[group.step] = static_cast<std::uint32_t>(groups_.size());
      groups_.push_back(group);
    }
  }
}

void Network::match(std::span<const ProgramSketch> ranks, std::span<const std::size_t> first) {
  std::vector<std::size_t> begin(ranks.size() + 1, groups_.size());
  for (std::size_t g = groups_.size(); g-- > 0;) begin[index(groups_[g].rank)] = g;
  for (std::size_t r = ranks.size(); r-- > 0;) begin[r] = std::min(begin[r], begin[r + 1]);
  const auto step_of = [&](const Group& group) -> const ProgramSketch::Step& {
    return ranks[index(group.rank)].steps[group.step - first[index(group.rank)]];
  };
  std::uint32_t receives = 0;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    group.first_receive = receives;
    receives += group.receives;
    group.first_send = static_cast<std::uint32_t>(messages_.size());
    const auto sends = ranks[index(group.rank)].sends_of(group.step - first[index(group.rank)]);
    const auto next = std::find_if(sends.begin(), sends.end(), [&](const auto& m) { return m.peer > group.rank; });
    const auto rotated = next - sends.begin();
    for (std::size_t i = 0; i < sends.size(); ++i) {
      const ProgramSketch::JoinedMessage& send = sends[(index(rotated) + i) % sends.size()];
      const auto last = groups_.begin() + static_cast<std::ptrdiff_t>(begin[index(send.peer) + 1]);
      const auto partner =
          std::lower_bound(groups_.begin() + static_cast<std::ptrdiff_t>(begin[index(send.peer)]), last, group,
                           [&](const Group& a, const Group& b) { return key_of(step_of(a)) < key_of(step_of(b)); });
      DISTATTN_EXPECT(partner != last && key_of(step_of(*partner)) == key_of(step_of(group)));
      const bool far = node_of(group.rank) != node_of(send.peer);
      const double seconds = static_cast<double>(send.bytes) / link(far).bytes_per_s;
      messages_.push_back({g, static_cast<std::uint32_t>(partner - groups_.begin()), seconds, 0, 0, far});
    }
  }
  incoming_.resize(receives);
  std::vector<std::uint32_t> filled(groups_.size(), 0);
  for (std::uint32_t m = 0; m < messages_.size(); ++m) {
    const std::uint32_t to = messages_[m].to;
    DISTATTN_EXPECT(filled[to] < groups_[to].receives);
    incoming_[groups_[to].first_receive + filled[to]++] = m;
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) DISTATTN_EXPECT(filled[g] == groups_[g].receives);
}

void Network::order_shared_ports(std::span<const ProgramSketch> ranks, std::span<const std::size_t> first) {
  const std::size_t nodes = ranks.empty() ? 0 : node_of(static_cast<Rank>(ranks.size()) - 1) + 1;
  out_.resize(nodes);
  in_.resize(nodes);
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    if (has_far(groups_[g], true)) out_[node_of(groups_[g].rank)].order.push_back(g);
    if (has_far(groups_[g], false)) in_[node_of(groups_[g].rank)].order.push_back(g);
  }
  const auto turn = [&](std::uint32_t g) {
    const Rank rank = groups_[g].rank;
    return std::tuple_cat(key_of(ranks[index(rank)].steps[groups_[g].step - first[index(rank)]]), std::tuple(rank));
  };
  const auto before = [&](std::uint32_t a, std::uint32_t b) { return turn(a) < turn(b); };
  for (SharedPort& port : out_) std::sort(port.order.begin(), port.order.end(), before);
  for (SharedPort& port : in_) std::sort(port.order.begin(), port.order.end(), before);
}

bool Network::has_far(const Group& group, bool sending) const {
  const std::uint32_t begin = sending ? group.first_send : group.first_receive;
  const std::uint32_t count = sending ? group.sends : group.receives;
  for (std::uint32_t i = begin; i < begin + count; ++i) {
    if (messages_[sending ? i : incoming_[i]].far) return true;
  }
  return false;
}

void Network::begin(std::size_t step, double now, std::vector<Ended>& ended, std::vector<Copy>& copies) {
  Group& group = groups_[group_of_step_[step]];
  group.begun = true;
  group.start = group.end = now;
  double near_free = now, far_free = now;
  depart(group, false, near_free, ended);
  if (shared_) {
    depart_shared(node_of(group.rank), ended);
  } else {
    depart(group, true, far_free, ended);
  }
  for (std::uint32_t i = group.first_receive; i < group.first_receive + group.receives; ++i) {
    if (messages_[incoming_[i]].departed) arrive(messages_[incoming_[i]], ended);
  }
  if (copies_near_) find_copies(group, copies);
  if (group.receives == 0) receive(group, ended);
}

/// Of the group's messages, those whose other end has begun. What a group takes besides its bytes, its messages share.
void Network::find_copies(const Group& group, std::vector<Copy>& copies) const {
  const auto share = [](const Group& of) { return 1.0 / (of.sends + of.receives); };
  const auto add = [&](std::uint32_t m, std::uint32_t other) {
    if (is_copy(messages_[m]) && groups_[other].begun) {
      const double groups = share(group) + share(groups_[other]);
      copies.push_back({m, groups * machine_.near.latency_s + messages_[m].seconds});
    }
  };
  for (std::uint32_t m = group.first_send; m < group.first_send + group.sends; ++m) add(m, messages_[m].to);
  for (std::uint32_t i = group.first_receive; i < group.first_receive + group.receives; ++i) {
    add(incoming_[i], messages_[incoming_[i]].from);
  }
}

void Network::copied(std::uint32_t message, double now, std::vector<Ended>& ended) {
  Group& from = groups_[messages_[message].from];
  Group& to = groups_[messages_[message].to];
  from.end = std::max(from.end, now);
  to.end = std::max(to.end, now);
  --from.sends_open;
  if (--to.receives_open == 0) receive(to, ended);
  end_if_done(from, ended);
}

void Network::depart(Group& group, bool far, double& free, std::vector<Ended>& ended) {
  free = std::max(free, group.start);
  for (std::uint32_t m = group.first_send; m < group.first_send + group.sends; ++m) {
    Flow& message = messages_[m];
    if (message.far != far || is_copy(message)) continue;
    message.departs = free;
    message.departed = true;
    free += message.seconds;
    if (groups_[message.to].begun) arrive(message, ended);
  }
}

void Network::depart_shared(std::size_t node, std::vector<Ended>& ended) {
  SharedPort& port = out_[node];
  while (port.next < port.order.size() && groups_[port.order[port.next]].begun) {
    depart(groups_[port.order[port.next++]], true, port.free, ended);
  }
}

void Network::arrive(Flow& message, std::vector<Ended>& ended) {
  Group& from = groups_[message.from];
  Group& to = groups_[message.to];
  message.reaches = std::max(message.departs, to.start) + link(message.far).latency_s;
  from.end = std::max(from.end, message.reaches + message.seconds);
  --from.sends_open;
  if (--to.receives_open == 0) receive(to, ended);
  end_if_done(from, ended);
}

/// When the last of the group's messages has passed a port that is free from `free` on: those that reach it first go
/// first, which makes the last one's end as early as can be and never later for a message that comes earlier.
double Network::enter(const Group& group, bool far, double free) const {
  std::vector<std::pair<double, double>> reached;
  for (std::uint32_t i = group.first_receive; i < group.first_receive + group.receives; ++i) {
    const Flow& message = messages_[incoming_[i]];
    if (message.far == far && !is_copy(message)) reached.emplace_back(message.reaches, message.seconds);
  }
  std::sort(reached.begin(), reached.end());
  double clock = std::max(free, group.start);
  for (const auto& [time, seconds] : reached) clock = std::max(clock, time) + seconds;
  return clock;
}

void Network::enter_shared(std::size_t node, std::vector<Ended>& ended) {
  SharedPort& port = in_[node];
  for (; port.next < port.order.size(); ++port.next) {
    Group& group = groups_[port.order[port.next]];
    if (!group.begun || group.receives_open > 0) return;
    port.free = enter(group, true, port.free);
    group.end = std::max(group.end, port.free);
    group.entered = true;
    end_if_done(group, ended);
  }
}

/// Every message of the group has arrived.
void Network::receive(Group& group, std::vector<Ended>& ended) {
  group.end = std::max(group.end, enter(group, false, group.start));
  if (shared_ && has_far(group, false)) {
    enter_shared(node_of(group.rank), ended);
    return;
  }
  group.end = std::max(group.end, enter(group, true, group.start));
  group.entered = true;
  end_if_done(group, ended);
}

void Network::end_if_done(Group& group, std::vector<Ended>& ended) const {
  if (!group.entered || group.sends_open > 0 || group.ended) return;
  group.ended = true;
  ended.push_back({group.step, group.end});
}

}  // namespace distattn

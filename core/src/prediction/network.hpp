#pragma once
/// Exchanges on a machine's links: who sends what to whom through which port, and when it has arrived.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "distattn/index.hpp"
#include "distattn/machine.hpp"
#include "distattn/simulate.hpp"

namespace distattn {

/// All exchange steps of all ranks. Where ranks compute on cores, near messages are copies: who begins second copies,
/// one message after the other, and how long that takes depends on what else its core does, which is the caller's to
/// say. Other messages pass ports. A group's messages leave its port one after the other, the next rank's first, as
/// soon as the group has begun and never before the receiver's group has; they pass the receiver's port in the
/// order in which they reach it. Latency delays a message and keeps no port busy.
/// The groups of a link that a node shares take turns by (number, lane, due, rank): an order that does not depend on
/// time, so that a message which is ready earlier never makes another one late, and overlapping never costs time.
class Network {
 public:
  /// `first[r]` is the global number of rank r's first step. Every message must have its partner.
  Network(std::span<const ProgramSketch> ranks, std::span<const std::size_t> first, const Machine& machine);

  struct Ended {
    std::size_t step;  ///< global number
    double time;
  };
  struct Copy {
    std::uint32_t message;
    double seconds;  ///< of a core that does nothing else
  };
  /// Begins the exchange `step`, appends to `ended` every exchange whose end is thereby known, and to `copies` what the
  /// step's rank has to copy.
  void begin(std::size_t step, double now, std::vector<Ended>& ended, std::vector<Copy>& copies);
  /// A message has been copied.
  void copied(std::uint32_t message, double now, std::vector<Ended>& ended);
  std::size_t message_count() const { return messages_.size(); }

 private:
  struct Flow {
    std::uint32_t from, to;           // groups
    double seconds;                   // on its link
    double departs = 0, reaches = 0;  // when its first byte does
    bool far, departed = false;
  };
  struct Group {
    std::size_t step = 0;
    Rank rank = 0;
    std::uint32_t first_send = 0, sends = 0;
    std::uint32_t first_receive = 0, receives = 0;  // into incoming_
    std::uint32_t sends_open = 0, receives_open = 0;
    double start = 0, end = 0;
    bool begun = false, entered = false, ended = false;  // entered: all it receives has passed its ports
  };
  /// One direction of a shared link and the groups that will use it, in their order.
  struct SharedPort {
    std::vector<std::uint32_t> order;
    std::size_t next = 0;
    double free = 0;
  };

  std::size_t node_of(Rank rank) const { return index(machine_.node_of(rank)); }
  const Link& link(bool far) const { return far ? machine_.far : machine_.near; }
  bool is_copy(const Flow& message) const { return copies_near_ && !message.far; }
  bool has_far(const Group& group, bool sending) const;
  void add_groups(std::span<const ProgramSketch> ranks, std::span<const std::size_t> first);
  void match(std::span<const ProgramSketch> ranks, std::span<const std::size_t> first);
  void order_shared_ports(std::span<const ProgramSketch> ranks, std::span<const std::size_t> first);

  void find_copies(const Group& group, std::vector<Copy>& copies) const;
  void depart(Group& group, bool far, double& free, std::vector<Ended>& ended);
  void depart_shared(std::size_t node, std::vector<Ended>& ended);
  void arrive(Flow& message, std::vector<Ended>& ended);
  double enter(const Group& group, bool far, double free) const;
  void enter_shared(std::size_t node, std::vector<Ended>& ended);
  void receive(Group& group, std::vector<Ended>& ended);
  void end_if_done(Group& group, std::vector<Ended>& ended) const;

  const Machine& machine_;
  bool shared_, copies_near_;
  std::vector<Group> groups_;
  std::vector<std::uint32_t> group_of_step_;
  std::vector<Flow> messages_;
  std::vector<std::uint32_t> incoming_;
  std::vector<SharedPort> out_, in_;  // by node
};

}  // namespace distattn

#pragma once
/// The fields of a planned pass, listed once: what the C API and `distattn plan --json` print.

#include <optional>

#include "core/src/fields.hpp"
#include "distattn/plan.hpp"

namespace distattn {

inline void fields_of(const PassPlan& plan, RowFields& field) {
  const Counts& counts = plan.counts;
  const int node_size = plan.routes.node_size;
  field({"schedule", units::none, "The schedule; F/B if the passes differ."}, plan.schedule);
  field({"pass", units::none, "The pass: forward or backward."}, plan.pass);
  field({"mode", units::none, "How messages and computing overlap: overlapped, serial or gathered."}, plan.mode);
  field({"ranks", units::none, "Number of ranks."}, plan.ranks);
  field({"seq", units::tokens, "Queries of a sequence."}, plan.seq_q);
  field({"node_size", units::none, "Ranks of a node, null if messages go straight."},
        node_size > 0 ? std::optional(node_size) : std::nullopt);
  field({"ahead", units::none, "Steps by which messages between nodes are posted early."}, plan.routes.ahead);
  field({"steps", units::none, "Number of steps."}, counts.steps);
  field({"messages", units::none, "Messages of all ranks, one for each value."}, counts.messages);
  field({"messages_coalesced", units::none, "Messages as they are sent: joined by step, lane and peer."},
        counts.messages_coalesced);
  field({"tiles", units::none, "Tiles that all ranks compute."}, counts.tiles);
  field({"bytes_sent_max", units::bytes, "Bytes that the busiest rank sends."}, largest(counts.bytes_sent));
  field({"bytes_sent_mean", units::bytes, "Bytes that a rank sends on average."}, mean(counts.bytes_sent));
  field({"bytes_far_max", units::bytes, "Bytes that the busiest rank sends to other nodes."},
        largest(counts.bytes_far));
  field({"bytes_far_mean", units::bytes, "Bytes that a rank sends to other nodes on average."}, mean(counts.bytes_far));
  field({"idle_ideal", units::idle_share, "Share of time in which ranks do not compute even if messages take no time."},
        plan.idle_ideal);
  field({"peak_remote_values", units::none,
         "Most values of other ranks that a rank holds at a time, and copies of values in another element type."},
        largest(counts.peak_remote_values));
  field({"peak_remote_bytes", units::bytes, "Most bytes of a rank's buffers for these values."},
        largest(counts.peak_remote_bytes));
  field({"memory_bytes", units::bytes, "Most bytes of all buffers of a rank."}, largest(counts.memory_bytes));
  field({"lower_bound_s", units::seconds,
         "Time that no schedule can be below: balanced work at the machine's best rate, and packing."},
        plan.lower_bound_s);
  field({"predicted_s", units::seconds, "Predicted time, by simulation on the machine."}, plan.predicted_s);
  field({"proved", units::none, "Whether the programs were proved to compute every visible pair once."},
        true);  // otherwise there is no plan
}

}  // namespace distattn

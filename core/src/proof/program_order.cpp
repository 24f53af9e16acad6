#include "core/src/proof/program_order.hpp"

#include <fmt/format.h>

#include "distattn/index.hpp"

namespace distattn {

OrderCheck::OrderCheck(Rank rank, const RankProgram& program, RankCheck& out)
    : rank_(rank),
      program_(program),
      out_(out),
      history_(program.slots.size()),
      sent_in_(program.slots.size(), 0),
      received_in_(program.slots.size(), 0),
      operands_(program.slots.size()) {}

void OrderCheck::next(const Step& step) {
  check_slots(step);
  for (const Op& op : step.ops) check_operands(step, op);
  if (step.lane != Lane::compute) check_exchange(step);
  ++position_;
}

void OrderCheck::find(FindingKind kind, const Step& step, const std::string& what) {
  out_.findings.push_back(finding_at(kind, rank_, step.number, what));
}

/// Every pair of steps that touch a slot must be ordered by lanes and `after`.
void OrderCheck::check_slots(const Step& step) {
  const LaneClock clock = clocks_.append(step);
  bool race = false;
  for (const Op& op : step.ops) {
    for_each_access(op, [&](BufferId buffer, Access access) {
      history_.for_each_conflict(decl(buffer).slot, access, [&](std::int32_t earlier) {
        const Step& other = program_.steps[index(earlier)];
        if (clock[index(other.lane)] >= earlier || race) return;
        race = true;
        find(FindingKind::race, step,
             fmt::format("{} in slot {} is not ordered after step {} of the {} lane", to_string(decl(buffer).value),
                         decl(buffer).slot, other.number, name_of(other.lane)));
      });
    });
  }
  for (const Op& op : step.ops) {
    for_each_access(
        op, [&](BufferId buffer, Access access) { history_.record(decl(buffer).slot, access, step.lane, position_); });
  }
}

/// An operation reads and writes its operands in no order: what it writes shares its slot with none of the others.
void OrderCheck::check_operands(const Step& step, const Op& op) {
  ++operations_;
  for_each_access(op, [&](BufferId buffer, Access access) {
    Operand& here = operands_[index(decl(buffer).slot)];
    if (here.operation != operations_) {
      here = {operations_, buffer, access};
    } else if (here.buffer != buffer && (here.access == Access::write || access == Access::write)) {
      find(FindingKind::race, step,
           fmt::format("{} shares its slot with {}, another operand", to_string(decl(buffer).value),
                       to_string(decl(here.buffer).value)));
    } else if (access == Access::write) {
      here.access = access;
    }
  });
}

/// Groups come in one order on all ranks, (number, lane, due), and messages of a group in one order on both sides:
/// then every rank reaches every group, and the messages of a pair of ranks meet without tags.
void OrderCheck::check_exchange(const Step& step) {
  const auto group = std::tuple(step.number, step.lane, step.due);
  if (group <= last_group_) find(FindingKind::deadlock, step, "exchanges out of order");
  last_group_ = group;
  ++exchanges_;
  std::pair<Rank, Value> last_send{-1, {}}, last_receive{-1, {}};
  for (const Op& op : step.ops) {
    if (const auto* send = std::get_if<Send>(&op)) {
      if (send->to != last_send.first) ++out_.messages_coalesced;
      check_next_message(step, last_send, {send->to, decl(send->source).value});
      sent_in_[index(decl(send->source).slot)] = exchanges_;
    } else if (const auto* receive = std::get_if<Recv>(&op)) {
      check_next_message(step, last_receive, {receive->from, decl(receive->into).value});
    }
  }
  check_slots_of_exchange(step);
}

/// Messages of a group are under way together: none may arrive where another does or leaves.
void OrderCheck::check_slots_of_exchange(const Step& step) {
  for (const Op& op : step.ops) {
    const auto* receive = std::get_if<Recv>(&op);
    if (receive == nullptr) continue;
    const auto slot = index(decl(receive->into).slot);
    if (sent_in_[slot] == exchanges_ || received_in_[slot] == exchanges_) {
      find(FindingKind::race, step,
           to_string(decl(receive->into).value) + " arrives in a slot that the same exchange uses");
    }
    received_in_[slot] = exchanges_;
  }
}

void OrderCheck::check_next_message(const Step& step, std::pair<Rank, Value>& last, std::pair<Rank, Value> next) {
  if (last.first >= 0 && !(last < next))
    find(FindingKind::unmatched, step, to_string(next.second) + " out of order in its group");
  last = next;
}

}  // namespace distattn

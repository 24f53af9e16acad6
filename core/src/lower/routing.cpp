#include "core/src/lower/routing.hpp"

#include <algorithm>
#include <utility>

#include "core/src/lower/gates.hpp"
#include "core/src/lower/relays.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// Lays the messages of one value after the other.
class Router {
 public:
  Router(const Outline& outline, const ValueIndex& values, int table_steps, const Routes& routes, int lead)
      : outline_(outline),
        values_(values),
        table_steps_(table_steps),
        routes_(routes),
        lead_(lead),
        inputs_(outline.sharding.ranks),
        results_(outline.sharding.ranks) {
    far_sent_.resize(index(outline.sharding.ranks));
    far_received_.resize(index(outline.sharding.ranks));
  }

  /// Whether a value enters another node for several users that need it at once from the start: it then takes two
  /// exchanges before the first tile.
  static bool enters_in_two_steps(const Outline& outline, const Uses& uses, const ValueIndex& values,
                                  const Routes& routes) {
    if (routes.node_size == 0) return false;
    const bool gathered = outline.mode == Mode::gathered;
    for (std::size_t v = 0; v < values.size(); ++v) {
      const int home = owner_of(outline, values.input(v)) / routes.node_size;
      int node = -1, at_once = 0;
      for (const Use& use : uses.of(v)) {  // by rank, so one node after the other
        const int here = use.rank / routes.node_size;
        if (here != node) node = here, at_once = 0;
        if (here != home && (gathered || use.first == 0) && ++at_once > 1) return true;
      }
    }
    return false;
  }

  /// Counts a value, so that it is known which have many users.
  void note_users(std::size_t value, std::span<const Use> uses) {
    if (uses.empty()) return;
    const Rank owner = owner_of(outline_, values_.input(value));
    std::size_t stops = uses.size();
    if (routes_.node_size > 0) {
      stops = 0;
      for_each_node(uses, [&](int node, const auto&) { stops += node != owner / routes_.node_size ? 1 : 0; });
    }
    inputs_.note(owner, stops, bytes_of(values_.input(value)));
    if (has_result(value)) results_.note(owner, stops, bytes_of(values_.result(value, outline_.pass, 0)));
  }

  void route_input(std::size_t value, std::span<const Use> uses) {
    const Rank owner = owner_of(outline_, values_.input(value));
    stops_.clear();
    if (routes_.node_size == 0) {
      for (const Use& use : uses) {
        const int step = overlapped() ? at(use.first) - 1 : 0;
        stops_.push_back({use.rank, step, step});
      }
      send_to_stops(value, owner);
      return;
    }
    for_each_node(uses, [&](int node, std::vector<Use>& users) {
      std::sort(users.begin(), users.end(),
                [](const Use& a, const Use& b) { return std::pair(a.first, a.rank) < std::pair(b.first, b.rank); });
      if (node == owner / routes_.node_size) {
        for (const Use& use : users) {
          const int step = overlapped() ? at(use.first) - 1 : 0;
          add(value, owner, use.rank, step, step, false);
        }
      } else {
        enter_node(value, users);
      }
    });
    send_to_stops(value, owner);
  }

  /// Results that leave a node from several of its ranks; gates are chosen when all are known.
  void note_departures(std::size_t value, std::span<const Use> uses) {
    if (routes_.node_size == 0) return;
    const int home = owner_of(outline_, values_.input(value)) / routes_.node_size;
    for_each_node(uses, [&](int node, std::vector<Use>& users) {
      if (node == home || users.size() == 1) {
        if (node != home) far_sent_[at(users[0])] += bytes_of(values_.result(value, outline_.pass, 0));
        return;
      }
      std::sort(users.begin(), users.end(), [](const Use& a, const Use& b) {
        return std::pair(-a.last, a.rank) < std::pair(-b.last, b.rank);  // the last to end adds no step
      });
      Departure departure{bytes_of(values_.result(value, outline_.pass, 0)), {}, -1};
      for (const Use& use : users) departure.candidates.push_back(use.rank);
      departures_.push_back(std::move(departure));
    });
  }
  void choose_gates() { spread_gates(departures_, far_sent_); }

  /// Called in the same order as note_departures.
  void route_result(std::size_t value, std::span<const Use> uses) {
    const Rank owner = owner_of(outline_, values_.input(value));
    stops_.clear();
    if (routes_.node_size == 0) {
      for (const Use& use : uses) leave(use.rank, sent_at(use));
      reply_from_stops(value, owner);
      return;
    }
    for_each_node(uses, [&](int node, std::vector<Use>& users) {
      if (node == owner / routes_.node_size) {
        for (const Use& use : users) reply(value, use.rank, owner, sent_at(use));
      } else if (users.size() == 1) {
        leave(users[0].rank, sent_at(users[0]));
      } else {
        leave_node(value, users, departures_[next_departure_++].gate);
      }
    });
    reply_from_stops(value, owner);
  }

  std::vector<Message> take() { return std::move(messages_); }

 private:
  bool overlapped() const { return outline_.mode != Mode::gathered; }
  int at(int table_step) const { return table_step + lead_; }
  int sent_at(const Use& use) const { return overlapped() ? at(use.last) + 1 : at(table_steps_); }

  void add(std::size_t value, Rank from, Rank to, int post, int due, bool result) {
    messages_.push_back({static_cast<std::int32_t>(value), from, to, post, due, result, is_far(outline_, from, to)});
  }
  void reply(std::size_t value, Rank from, Rank to, int step) { add(value, from, to, step, step, true); }
  bool has_result(std::size_t value) const { return outline_.pass == Pass::backward || value < values_.first_key(); }

  /// A tree is drawn once, from the owner outward; results take it backward in time.
  void leave(Rank rank, int step) { stops_.push_back({rank, -step, -step}); }
  template <class Visit>
  void for_each_branch(Relays& relays, Rank owner, std::int64_t bytes, Visit visit) {
    const std::vector<Rank> senders = relays.senders(owner, bytes, stops_);
    for (std::size_t s = 0; s < stops_.size(); ++s) visit(stops_[s], senders[s]);
  }
  void send_to_stops(std::size_t value, Rank owner) {
    const std::int64_t bytes = bytes_of(values_.input(value));
    for_each_branch(inputs_, owner, bytes, [&](const Stop& stop, Rank sender) {
      add(value, sender, stop.rank, stop.sent, stop.has, false);
      if (routes_.node_size > 0) far_sent_[index(sender)] += bytes;
    });
  }
  void reply_from_stops(std::size_t value, Rank owner) {
    const std::int64_t bytes = bytes_of(values_.result(value, outline_.pass, 0));
    for_each_branch(results_, owner, bytes,
                    [&](const Stop& stop, Rank to) { reply(value, stop.rank, to, -stop.sent); });
  }

  template <class Visit>
  void for_each_node(std::span<const Use> uses, Visit visit) {
    for (std::size_t begin = 0, end = 0; begin < uses.size(); begin = end) {
      const int node = uses[begin].rank / routes_.node_size;
      while (end < uses.size() && uses[end].rank / routes_.node_size == node) ++end;
      users_.assign(uses.begin() + static_cast<std::ptrdiff_t>(begin), uses.begin() + static_cast<std::ptrdiff_t>(end));
      visit(node, users_);
    }
  }

  /// Brought by its first user there, passed on by whoever has it a step early; users sorted by first use.
  void enter_node(std::size_t value, std::vector<Use>& users) {
    // Those that need it first are equally good at bringing it in: the one that has brought in least.
    const auto tied = std::find_if(users.begin(), users.end(), [&](const Use& u) { return u.first != users[0].first; });
    std::iter_swap(users.begin(), std::min_element(users.begin(), tied, [&](const Use& a, const Use& b) {
                     return far_received_[at(a)] < far_received_[at(b)];
                   }));
    const bool crowd = !overlapped() ? users.size() > 1 : tied - users.begin() > 1;
    const int due = overlapped() ? at(users[0].first) - (crowd ? 2 : 1) : 0;
    stops_.push_back({users[0].rank, std::max(0, due - routes_.ahead), due});
    far_received_[at(users[0])] += bytes_of(values_.input(value));

    Rank holder = users[0].rank;  // the latest to have it before the step at hand
    for (std::size_t k = 1; k < users.size(); ++k) {
      if (overlapped()) {
        for (std::size_t x = k; x-- > 0;) {
          if (users[x].first < users[k].first) {
            holder = users[x].rank;
            break;
          }
        }
      }
      const int step = overlapped() ? at(users[k].first) - 1 : 1;
      add(value, holder, users[k].rank, step, step, false);
    }
  }

  /// Merged at one rank of the node, the gate, and sent on as one message.
  void leave_node(std::size_t value, std::span<const Use> users, Rank gate) {
    int step = 0;
    for (const Use& use : users) {
      if (use.rank != gate) reply(value, use.rank, gate, sent_at(use));
      step = std::max(step, sent_at(use) + (use.rank != gate ? 1 : 0));
    }
    leave(gate, step);
  }

  static std::size_t at(const Use& use) { return index(use.rank); }
  std::int64_t bytes_of(const Value& value) const {
    const Problem& problem = outline_.sharding.problem;
    const DType dtype = is_input(value.kind) ? problem.dtype : problem.wire_type();
    return static_cast<std::int64_t>(message_bytes(outline_, value, dtype));
  }

  const Outline& outline_;
  const ValueIndex& values_;
  int table_steps_;
  Routes routes_;
  int lead_;
  std::vector<Message> messages_;
  std::vector<Use> users_;
  std::vector<Stop> stops_;  // of the value at hand
  Relays inputs_, results_;
  std::vector<std::int64_t> far_sent_, far_received_;  // bytes between nodes, by rank
  std::vector<Departure> departures_;
  std::size_t next_departure_ = 0;
};

}  // namespace

Traffic route(const Outline& outline, const Uses& uses, const ValueIndex& values, int table_steps,
              const Routes& routes) {
  const int lead = Router::enters_in_two_steps(outline, uses, values, routes) ? 2 : 1;
  Router router(outline, values, table_steps, routes, lead);
  for (std::size_t v = 0; v < values.size(); ++v) router.note_users(v, uses.of(v));
  for (std::size_t v = 0; v < values.size(); ++v) router.route_input(v, uses.of(v));
  const std::size_t results = outline.pass == Pass::forward ? values.first_key() : values.size();
  for (std::size_t v = 0; v < results; ++v) router.note_departures(v, uses.of(v));
  router.choose_gates();
  for (std::size_t v = 0; v < results; ++v) router.route_result(v, uses.of(v));
  return {router.take(), lead};
}

}  // namespace distattn

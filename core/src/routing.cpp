#include "routing.hpp"

#include <algorithm>

namespace distattn {
namespace {

/// Lays the messages of one value after the other.
class Router {
 public:
  Router(const Outline& outline, const ValueIndex& values, int table_steps, const Routes& routes, int lead)
      : outline_(outline), values_(values), table_steps_(table_steps), routes_(routes), lead_(lead) {
    far_load_.resize(static_cast<std::size_t>(outline.sharding.ranks));
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

  void route_input(std::size_t value, std::span<const Use> uses) {
    const Rank owner = owner_of(outline_, values_.input(value));
    if (routes_.node_size == 0) {
      for (const Use& use : uses) {
        const int step = overlapped() ? at(use.first) - 1 : 0;
        add(value, owner, use.rank, step, step, false);
      }
      return;
    }
    for_each_node(uses, [&](int node, std::vector<Use>& users) {
      std::sort(users.begin(), users.end(), [](const Use& a, const Use& b) {
        return std::pair(a.first, a.rank) < std::pair(b.first, b.rank);
      });
      if (node == owner / routes_.node_size) {
        for (const Use& use : users) {
          const int step = overlapped() ? at(use.first) - 1 : 0;
          add(value, owner, use.rank, step, step, false);
        }
      } else {
        enter_node(value, owner, users);
      }
    });
  }

  void route_result(std::size_t value, std::span<const Use> uses) {
    const Rank owner = owner_of(outline_, values_.input(value));
    if (routes_.node_size == 0) {
      for (const Use& use : uses) reply(value, use.rank, owner, sent_at(use));
      return;
    }
    for_each_node(uses, [&](int node, std::vector<Use>& users) {
      if (node == owner / routes_.node_size || users.size() == 1) {
        for (const Use& use : users) reply(value, use.rank, owner, sent_at(use));
      } else {
        leave_node(value, owner, users);
      }
    });
  }

  std::vector<Message> take() { return std::move(messages_); }

 private:
  bool overlapped() const { return outline_.mode != Mode::gathered; }
  int at(int table_step) const { return table_step + lead_; }
  int sent_at(const Use& use) const { return overlapped() ? at(use.last) + 1 : at(table_steps_); }

  void add(std::size_t value, Rank from, Rank to, int post, int due, bool result) {
    messages_.push_back({static_cast<std::int32_t>(value), from, to, post, due, result});
  }
  void reply(std::size_t value, Rank from, Rank to, int step) { add(value, from, to, step, step, true); }

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
  void enter_node(std::size_t value, Rank owner, std::vector<Use>& users) {
    // Those that need it first are equally good at bringing it in: the one that has brought in least.
    const auto tied = std::find_if(users.begin(), users.end(), [&](const Use& u) { return u.first != users[0].first; });
    std::iter_swap(users.begin(), std::min_element(users.begin(), tied, [&](const Use& a, const Use& b) {
                     return load(a.rank) < load(b.rank);
                   }));
    const bool crowd = !overlapped() ? users.size() > 1 : tied - users.begin() > 1;
    const int due = overlapped() ? at(users[0].first) - (crowd ? 2 : 1) : 0;
    add(value, owner, users[0].rank, std::max(0, due - routes_.ahead), due, false);
    load(users[0].rank) += weight(value);

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
  void leave_node(std::size_t value, Rank owner, std::vector<Use>& users) {
    int last = 0;
    for (const Use& use : users) last = std::max(last, sent_at(use));
    const auto gate = std::min_element(users.begin(), users.end(), [&](const Use& a, const Use& b) {
      return std::tuple(load(a.rank), -sent_at(a), a.rank) < std::tuple(load(b.rank), -sent_at(b), b.rank);
    });
    int step = sent_at(*gate);
    for (const Use& use : users) {
      if (use.rank == gate->rank) continue;
      reply(value, use.rank, gate->rank, sent_at(use));
      step = std::max(step, sent_at(use) + 1);
    }
    reply(value, gate->rank, owner, step);
    load(gate->rank) += weight(value);
  }

  std::int64_t& load(Rank rank) { return far_load_[static_cast<std::size_t>(rank)]; }
  std::int64_t weight(std::size_t value) const {
    const Value input = values_.input(value);
    const auto& side = is_key_side(input.kind) ? outline_.sharding.keys : outline_.sharding.queries;
    return side[index(input.segment)].run.count;
  }

  const Outline& outline_;
  const ValueIndex& values_;
  int table_steps_;
  Routes routes_;
  int lead_;
  std::vector<Message> messages_;
  std::vector<Use> users_;
  std::vector<std::int64_t> far_load_;  // tokens carried into or out of the rank's node
};

}  // namespace

Traffic route(const Outline& outline, const Uses& uses, const ValueIndex& values, int table_steps,
              const Routes& routes) {
  const int lead = Router::enters_in_two_steps(outline, uses, values, routes) ? 2 : 1;
  Router router(outline, values, table_steps, routes, lead);
  for (std::size_t v = 0; v < values.size(); ++v) router.route_input(v, uses.of(v));
  for (std::size_t v = 0; v < values.size(); ++v) {
    if (outline.pass == Pass::forward && values.on_key_side(v)) break;
    router.route_result(v, uses.of(v));
  }
  return {router.take(), lead};
}

}  // namespace distattn

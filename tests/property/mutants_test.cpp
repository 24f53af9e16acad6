/// A thousand ways to break a program, all of them rejected; and one of each kind of finding.

#include <algorithm>
#include <functional>
#include <memory>
#include <random>

#include "catch.hpp"
#include "distattn/lower.hpp"
#include "distattn/plan.hpp"
#include "distattn/verify.hpp"

using namespace distattn;

namespace {

using Generator = std::mt19937_64;

std::size_t below(Generator& random, std::size_t n) { return static_cast<std::size_t>(random() % n); }

Schedule lowered(const std::string& name, int ranks, Pass pass, Routes routes, DType wire, const Mask& mask) {
  Problem problem;
  problem.seq_q = problem.seq_kv = 53;
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim = problem.value_dim = 8;
  problem.wire = wire;
  problem.mask = mask;
  if (name == "placed") {
    problem.mask = {.documents = {0, 30, 33, 53}};
    ScheduleRequest request{.schedule = name, .passes = Passes::both};
    request.node_size = routes.node_size;
    return or_refuse(plan(problem, ranks, request)).schedule(pass);
  }
  const auto resolved = resolve_schedule(name, problem, ranks);
  REQUIRE(std::holds_alternative<Recipe>(resolved));
  const Recipe& recipe = std::get<Recipe>(resolved);
  const auto tiles = std::make_shared<const Tiles>(shard(problem, ranks, recipe.layout, recipe.groups));
  return lower(Lowering(recipe.name, tiles, recipe.table(tiles, routes.node_size), pass, recipe.mode, routes));
}

/// A random step that satisfies `fits`, if there is one.
template <class Fits>
Step* some_step(Schedule& schedule, Generator& random, Fits fits) {
  std::vector<Step*> found;
  for (RankProgram& program : schedule.ranks) {
    for (Step& step : program.steps) {
      if (fits(step)) found.push_back(&step);
    }
  }
  return found.empty() ? nullptr : found[below(random, found.size())];
}

/// A mutator changes what the schedule computes and returns true, or finds nothing to change.
struct Mutator {
  const char* name;
  std::function<bool(Schedule&, Generator&)> apply;
};

const std::vector<Mutator>& mutators() {
  static const std::vector<Mutator> all = {
      {"an operation is missing",
       [](Schedule& s, Generator& random) {
         Step* step = some_step(s, random, [](const Step&) { return true; });
         step->ops.erase(step->ops.begin() + static_cast<std::ptrdiff_t>(below(random, step->ops.size())));
         return true;
       }},
      {"an operation stands twice",
       [](Schedule& s, Generator& random) {
         Step* step = some_step(s, random, [](const Step& x) { return !std::holds_alternative<Clear>(x.ops[0]); });
         if (step == nullptr) return false;
         std::vector<std::size_t> fit;
         for (std::size_t o = 0; o < step->ops.size(); ++o) {
           if (!std::holds_alternative<Clear>(step->ops[o])) fit.push_back(o);
         }
         step->ops.push_back(step->ops[fit[below(random, fit.size())]]);
         return true;
       }},
      {"a message goes to another rank",
       [](Schedule& s, Generator& random) {
         Step* step = some_step(s, random, [](const Step& x) { return x.lane != Lane::compute; });
         if (step == nullptr) return false;
         Op& op = step->ops[below(random, step->ops.size())];
         Rank& peer = std::holds_alternative<Send>(op) ? std::get<Send>(op).to : std::get<Recv>(op).from;
         peer = (peer + 1) % s.outline.sharding.ranks;
         return true;
       }},
      {"an exchange has another number",
       [](Schedule& s, Generator& random) {
         Step* step = some_step(s, random, [](const Step& x) { return x.lane != Lane::compute; });
         if (step == nullptr) return false;
         ++step->number;
         ++step->due;
         return true;
       }},
      {"a far message is due at another time",
       [](Schedule& s, Generator& random) {
         Step* step = some_step(s, random, [](const Step& x) { return x.lane == Lane::far; });
         if (step == nullptr) return false;
         ++step->due;
         return true;
       }},
      {"nothing orders two lanes",
       [](Schedule& s, Generator& random) {
         Step* step = some_step(s, random, [](const Step& x) { return !x.after.empty(); });
         if (step == nullptr) return false;
         step->after.erase(step->after.begin() + static_cast<std::ptrdiff_t>(below(random, step->after.size())));
         return true;
       }},
      {"a result starts the other way",
       [](Schedule& s, Generator& random) {
         const auto attends = [](const Step& x) {
           return std::holds_alternative<Attend>(x.ops[0]) || std::holds_alternative<AttendBackward>(x.ops[0]);
         };
         Step* step = some_step(s, random, attends);
         Op& op = step->ops[below(random, step->ops.size())];
         const auto flip = [](Start& start) { start = start == Start::fresh ? Start::carry : Start::fresh; };
         if (auto* forward = std::get_if<Attend>(&op))
           flip(forward->start);
         else
           flip(std::get<AttendBackward>(op).start);
         return true;
       }},
      {"a key segment is left out or stands twice",
       [](Schedule& s, Generator& random) {
         const auto attends = [](const Step& x) {
           return std::holds_alternative<Attend>(x.ops[0]) || std::holds_alternative<AttendBackward>(x.ops[0]);
         };
         Step* step = some_step(s, random, attends);
         Op& op = step->ops[below(random, step->ops.size())];
         auto& keys =
             std::holds_alternative<Attend>(op) ? std::get<Attend>(op).keys : std::get<AttendBackward>(op).keys;
         const std::size_t which = below(random, keys.size());
         if (random() % 2 == 0)
           keys.push_back(keys[which]);
         else
           keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(which));
         return true;
       }},
      {"a buffer holds another value",
       [](Schedule& s, Generator& random) {
         RankProgram& program = s.ranks[below(random, s.ranks.size())];
         Value& value = program.buffers[below(random, program.buffers.size())].value;
         const auto& side = is_key_side(value.kind) ? s.outline.sharding.keys : s.outline.sharding.queries;
         value.segment =
             static_cast<SegmentId>((index(value.segment) + 1 + below(random, side.size() - 1)) % side.size());
         return true;
       }},
      {"an operation reads another buffer",
       [](Schedule& s, Generator& random) {
         RankProgram& program = s.ranks[below(random, s.ranks.size())];
         Step& step = program.steps[below(random, program.steps.size())];
         Op& op = step.ops[below(random, step.ops.size())];
         const auto other = [&](BufferId& buffer) {
           buffer = static_cast<BufferId>((index(buffer) + 1 + below(random, program.buffers.size() - 1)) %
                                          program.buffers.size());
         };
         struct Change {
           decltype(other)& change;
           void operator()(Send& o) { change(o.source); }
           void operator()(Recv& o) { change(o.into); }
           void operator()(Attend& o) { change(o.query); }
           void operator()(AttendBackward& o) { change(o.keys.front().key_value); }
           void operator()(Merge& o) { change(o.from); }
           void operator()(Accumulate& o) { change(o.from); }
           void operator()(Convert& o) { change(o.from); }
           void operator()(Clear& o) { change(o.buffer); }
         };
         std::visit(Change{other}, op);
         return true;
       }},
      {"a gather lacks at one rank, or names another buffer",
       [](Schedule& s, Generator& random) {
         Step* step = some_step(s, random, [](const Step& x) { return !x.gathers.empty(); });
         if (step == nullptr) return false;
         const std::size_t which = below(random, step->gathers.size());
         if (random() % 2 == 0) {
           step->gathers.erase(step->gathers.begin() + static_cast<std::ptrdiff_t>(which));
         } else {
           std::vector<BufferId>& buffers = step->gathers[which].buffers;
           BufferId& buffer = buffers[below(random, buffers.size())];
           buffer = static_cast<BufferId>(index(buffer) == 0 ? 1 : index(buffer) - 1);
         }
         return true;
       }},
      {"two buffers lie in each other's slots",
       [](Schedule& s, Generator& random) {
         std::vector<RankProgram*> found;
         for (RankProgram& program : s.ranks) {
           const auto gathers = [](const Step& x) { return !x.gathers.empty(); };
           if (std::any_of(program.steps.begin(), program.steps.end(), gathers)) found.push_back(&program);
         }
         if (found.empty()) return false;
         RankProgram& program = *found[below(random, found.size())];
         const auto step =
             std::find_if(program.steps.begin(), program.steps.end(), [](const Step& x) { return !x.gathers.empty(); });
         const std::vector<BufferId>& buffers = step->gathers[below(random, step->gathers.size())].buffers;
         const std::size_t which = below(random, buffers.size());
         std::swap(program.buffers[index(buffers[which])].slot,
                   program.buffers[index(buffers[(which + 1) % buffers.size()])].slot);
         return true;
       }},
      {"a rank does nothing at all",
       [](Schedule& s, Generator& random) {
         s.ranks[below(random, s.ranks.size())].steps.clear();
         return true;
       }},
  };
  return all;
}

struct Base {
  std::string description;
  Schedule schedule;
};

std::vector<Base> bases() {
  std::vector<Base> all;
  Mask window = causal_mask();
  window.left = 9;
  window.sinks = 3;
  for (const char* name :
       {"ring", "zigzag-ring", "balanced", "mesh:1x2x2", "mesh:2x2x1", "burst", "allgather", "placed"}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      for (const int node : {0, 2}) {
        for (const DType wire : {DType::fp32, DType::bf16}) {
          all.push_back({std::string(name) + " " + name_of(pass) + (node != 0 ? " routed" : ""),
                         lowered(name, 4, pass, {node, node}, wire, wire == DType::bf16 ? window : causal_mask())});
        }
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a thousand random mutants are rejected") {
  const std::uint64_t seed = 20260101;
  INFO("seed " << seed);
  Generator random(seed);
  const std::vector<Base> all = bases();
  for (const Base& base : all) {
    INFO(base.description);
    const VerifyReport report = verify(base.schedule);
    for (const Finding& finding : report.findings) UNSCOPED_INFO(finding.message);
    REQUIRE(report.proved());
  }
  int mutants = 0;
  while (mutants < 1500) {
    const Base& base = all[below(random, all.size())];
    const Mutator& mutator = mutators()[below(random, mutators().size())];
    Schedule mutant = base.schedule;
    if (!mutator.apply(mutant, random)) continue;
    ++mutants;
    INFO("mutant " << mutants << " of " << base.description << ": " << mutator.name);
    REQUIRE_FALSE(verify(mutant).proved());
  }
}

#include "backends/batches.hpp"

#include <algorithm>
#include <cmath>

#include "distattn/access.hpp"
#include "distattn/mask.hpp"

namespace distattn::backends {
namespace {

using Part = BufferTable::Part;

std::int64_t elements(const Part& part) {
  return static_cast<std::int64_t>(part.shape.bytes / size_of(part.shape.dtype));
}

/// Which operations of one step must follow which: an operation's level is one more than that of any before it that
/// touches the same slot, unless both only read it.
class Levels {
 public:
  explicit Levels(const BufferTable& buffers) : buffers_(buffers) {}

  int next(const Op& op) {
    int level = 0;
    for_each_access(op, [&](BufferId buffer, Access access) { level = std::max(level, after(op, buffer, access)); });
    for_each_access(op, [&](BufferId buffer, Access access) {
      Use& use = slots_[buffers_.decl(buffer).slot];
      int& last = access == Access::read ? use.read : shared(op, buffer) ? use.shared_write : use.write;
      last = std::max(last, level);
    });
    return level;
  }

 private:
  struct Use {
    int read = -1, write = -1, shared_write = -1;
  };

  /// Backward kernels add to one key segment's gradients from several operations of a list.
  static bool shared(const Op& op, BufferId buffer) {
    const auto* backward = std::get_if<AttendBackward>(&op);
    return backward != nullptr && buffer != backward->dquery;
  }
  int after(const Op& op, BufferId buffer, Access access) const {
    const auto found = slots_.find(buffers_.decl(buffer).slot);
    if (found == slots_.end()) return 0;
    const Use& use = found->second;
    if (access == Access::read) return std::max(use.write, use.shared_write) + 1;
    const int exclusive = std::max(use.read, use.write) + 1;
    return std::max(exclusive, shared(op, buffer) ? use.shared_write : use.shared_write + 1);
  }

  const BufferTable& buffers_;
  std::map<int, Use> slots_;
};

}  // namespace

kernels::TileShape shape_of(const Problem& problem, const HeadGroup& group) {
  return {.dtype = problem.dtype,
          .batch = problem.batch,
          .heads = {group.q_count, group.kv_count, group.q0, group.kv0, problem.heads_per_kv()},
          .head_dim = problem.head_dim,
          .value_dim = problem.value_dim,
          .scores = problem.resolved_scores(),
          .alibi_slopes = problem.alibi_slopes.empty() ? nullptr : problem.alibi_slopes.data() + group.q0,
          .shared_kv = problem.shared_kv};
}

kernels::TileShape shape_of(const Problem& problem) {
  return shape_of(problem, {.q0 = 0, .q_count = problem.heads, .kv0 = 0, .kv_count = problem.kv_heads});
}

/// Turns operations into arguments, all but where attention's operands lie.
class Batches::Builder {
 public:
  Builder(const BufferTable& buffers, Batches& into)
      : buffers_(buffers),
        sharding_(buffers.outline().sharding),
        mask_(bands_of(sharding_.problem.mask)),
        into_(into) {}

  std::vector<Batch> build(const Step& step) {
    Levels levels(buffers_);
    batches_.clear();
    for (const Op& op : step.ops) {
      level_ = levels.next(op);
      std::visit([&](const auto& one) { add(one); }, op);
    }
    std::vector<Batch> in_order;
    for (auto& [place, batch] : batches_) {
      in_order.push_back(std::move(batch));
      std::visit([&, level = place.first](auto& arguments) { locate(arguments, level); }, in_order.back());
    }
    attends_.clear();
    backwards_.clear();
    return in_order;
  }

 private:
  void add(const Send&) { refuse_message(); }
  void add(const Recv&) { refuse_message(); }
  [[noreturn]] static void refuse_message() {
    refuse("a message stands in a compute step (exchanges have their own lanes)");
  }

  void add(const Attend& op) {
    const std::span<kernels::KeySide> sides = keys(op.query, op.keys);
    kernels::AttendArgs& args = list<kernels::AttendArgs>().emplace_back();
    args.shape = shape(op.query);
    args.queries = run(op.query);
    args.keys = sides;
    args.lse = buffers_.parts(op.output)[1].data;
    args.lse_low = lse_low(op.output, 2);
    args.carry = op.start == Start::carry;
    args.max_logit = into_.max_logits_.of(value(op.query).group);
    attends_[level_].push_back({&op, sides.data(), nullptr});
  }
  void add(const AttendBackward& op) {
    const std::span<kernels::KeySide> sides = keys(op.query, op.keys);
    kernels::AttendBackwardArgs& args = list<kernels::AttendBackwardArgs>().emplace_back();
    args.shape = shape(op.query);
    args.lse = buffers_.parts(op.query)[2].data;
    args.lse_low = lse_low(op.query, 5);
    args.delta = buffers_.parts(op.query)[3].data;
    args.queries = run(op.query);
    args.keys = sides;
    args.carry = op.start == Start::carry;
    args.shared = floats(op.query, 4);
    args.sums = floats(op.dquery, 1);
    args.squares = floats(op.dquery, 2);
    backwards_[level_].push_back({&op, sides.data(), nullptr});
  }
  void add(const Merge& op) {
    const auto into = buffers_.parts(op.into), from = buffers_.parts(op.from);
    list<kernels::MergeArgs>().push_back({.accumulator = sharding_.problem.accumulator(),
                                          .rows = elements(into[1]),
                                          .dim = into[0].shape.dim,
                                          .o = into[0].data,
                                          .lse = into[1].data,
                                          .lse_low = lse_low(op.into, 2),
                                          .from_dtype = from[0].shape.dtype,
                                          .from_o = from[0].data,
                                          .from_lse = from[1].data,
                                          .from_lse_low = lse_low(op.from, 2)});
  }
  void add(const Accumulate& op) {
    const auto into = buffers_.parts(op.into), from = buffers_.parts(op.from);
    for (std::size_t part = 0; part < from.size(); ++part) {
      const bool sums = value(op.into).kind == ValueKind::dquery && part == 1;
      list<kernels::AccumulateArgs>().push_back({sharding_.problem.accumulator(), elements(into[part]), into[part].data,
                                                 from[part].shape.dtype, from[part].data,
                                                 sums ? floats(op.into, 2) : nullptr});
    }
  }
  void add(const Convert& op) {
    const auto into = buffers_.parts(op.into), from = buffers_.parts(op.from);
    for (std::size_t part = 0; part < into.size(); ++part) {
      list<kernels::ConvertArgs>().push_back(
          {elements(into[part]), into[part].shape.dtype, into[part].data, from[part].shape.dtype, from[part].data});
    }
  }
  void add(const Clear& op) {
    const auto parts = buffers_.parts(op.buffer);
    const bool partial = buffers_.decl(op.buffer).value.kind == ValueKind::output;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const double identity = partial && part == 1 ? -INFINITY : 0.0;
      list<kernels::FillArgs>().push_back({parts[part].shape.dtype, parts[part].data, elements(parts[part]), identity});
    }
  }

  template <class Args>
  std::vector<Args>& list() {
    const std::size_t kind = Batch(std::vector<Args>()).index();
    Batch& batch = batches_[{level_, kind}];
    if (batch.index() != kind) batch = std::vector<Args>();
    return std::get<std::vector<Args>>(batch);
  }

  /// A list has its final place: its arguments belong to the operations of its level, in order.
  void locate(std::vector<kernels::AttendArgs>& arguments, int level) {
    locate(arguments, attends_[level], into_.attends_);
  }
  void locate(std::vector<kernels::AttendBackwardArgs>& arguments, int level) {
    locate(arguments, backwards_[level], into_.backwards_);
  }
  template <class Args>
  void locate(std::vector<Args>&, int) {}
  template <class Args, class O>
  static void locate(std::vector<Args>& arguments, const std::vector<Bound<O, Args>>& bound,
                     std::vector<Bound<O, Args>>& all) {
    for (std::size_t i = 0; i < arguments.size(); ++i) all.push_back({bound[i].op, bound[i].sides, &arguments[i]});
  }

  /// Null where there is none.
  std::uint16_t* lse_low(BufferId buffer, std::size_t part) const { return optional<std::uint16_t>(buffer, part); }
  float* floats(BufferId buffer, std::size_t part) const { return optional<float>(buffer, part); }
  template <class Element>
  Element* optional(BufferId buffer, std::size_t part) const {
    const auto parts = buffers_.parts(buffer);
    return part < parts.size() ? reinterpret_cast<Element*>(parts[part].data) : nullptr;
  }
  const Value& value(BufferId buffer) const { return buffers_.decl(buffer).value; }
  const Run& run(BufferId query) const { return sharding_.queries[index(value(query).segment)].run; }

  kernels::TileShape shape(BufferId query) const {
    kernels::TileShape shape = shape_of(sharding_.problem, sharding_.groups[index(value(query).group)]);
    if (sharding_.problem.scores.dropout > 0) shape.dropout = &into_.dropout_;
    return shape;
  }

  std::span<kernels::KeySide> keys(BufferId query, const std::vector<KeyChunk>& chunks) {
    std::vector<kernels::KeySide>& sides = into_.keys_.emplace_back();
    for (const KeyChunk& chunk : chunks) {
      const SegmentId segment = value(chunk.key_value).segment;
      kernels::KeySide& side = sides.emplace_back();
      side.keys = sharding_.keys[index(segment)].run;
      side.bands = bands(value(query).segment, segment);
      side.carry = chunk.start == Start::carry;
    }
    return sides;
  }
  /// One list for all head groups of a tile.
  std::span<const Band> bands(SegmentId query, SegmentId key) {
    const auto [found, added] = into_.bands_.try_emplace({query, key});
    if (added) mask_.touching(sharding_.queries[index(query)].run, sharding_.keys[index(key)].run, found->second);
    return found->second;
  }

  const BufferTable& buffers_;
  const Sharding& sharding_;
  const BandIndex mask_;
  Batches& into_;
  int level_ = 0;
  std::map<std::pair<int, std::size_t>, Batch> batches_;                    // by level and kind
  std::map<int, std::vector<Bound<Attend, kernels::AttendArgs>>> attends_;  // by level, as in its list
  std::map<int, std::vector<Bound<AttendBackward, kernels::AttendBackwardArgs>>> backwards_;
};

Batches::Batches(const BufferTable& buffers, const Placement& placement, const MaxLogits& max_logits)
    : max_logits_(max_logits), values_(buffers.outline().sharding.problem.shared_kv ? 0 : 1) {
  const Problem& problem = buffers.outline().sharding.problem;
  dropout_.probability = problem.scores.dropout;
  dropout_.heads = problem.heads;
  Builder builder(buffers, *this);
  for (const Step& step : buffers.program().steps) {
    steps_.push_back(step.lane == Lane::compute ? builder.build(step) : std::vector<Batch>());
  }
  bind(placement);
}

void Batches::set_dropout(const Bindings& bindings) {
  dropout_.seed = bindings.dropout_seed;
  dropout_.offset = bindings.dropout_offset;
}

void Batches::bind(const Placement& placement) {
  for (const auto& [op, sides, args] : attends_) {
    args->q = placement.rows(op->query, 0);
    args->o = placement.rows(op->output, 0);
    for (std::size_t i = 0; i < op->keys.size(); ++i) {
      sides[i].k = placement.rows(op->keys[i].key_value, 0);
      sides[i].v = placement.rows(op->keys[i].key_value, values_);
    }
  }
  for (const auto& [op, sides, args] : backwards_) {
    args->q = placement.rows(op->query, 0);
    args->d_o = placement.rows(op->query, 1);
    args->dq = placement.rows(op->dquery, 0);
    for (std::size_t i = 0; i < op->keys.size(); ++i) {
      sides[i].k = placement.rows(op->keys[i].key_value, 0);
      sides[i].v = placement.rows(op->keys[i].key_value, values_);
      sides[i].dk = placement.rows(op->keys[i].dkey_value, 0);
      sides[i].dv = placement.rows(op->keys[i].dkey_value, values_);
    }
  }
}

}  // namespace distattn::backends

#include "core/src/prediction/sketch.hpp"

#include <algorithm>
#include <vector>

#include "distattn/access.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

class Sketcher {
 public:
  Sketcher(const Outline& outline, const SeenTiles& seen, Rank rank, const RankProgram& program, const Latents* latents,
           bool on_cores)
      : outline_(outline),
        seen_(seen),
        tiles_(seen.tiles()),
        program_(program),
        latents_(latents),
        as_latents_(program.buffers.size()),
        readers_(program.buffers.size(), 0) {
    sketch_.rank = rank;
    bytes_.reserve(program.buffers.size());
    for (const BufferDecl& buffer : program.buffers) {
      bytes_.push_back(static_cast<std::int64_t>(message_bytes(outline, buffer.value, buffer.dtype)));
    }
    std::vector<bool> in_place(program.buffers.size(), false);
    if (on_cores)
      in_place = use_in_place(outline, program, [&](SegmentId query, SegmentId key) { return seen.pairs(query, key); });
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      const Value& value = program.buffers[b].value;
      if (owner_of(outline, value) != rank || (!is_input(value.kind) && value.contributor != rank)) continue;
      ProgramSketch::Packing& packing = is_input(value.kind) ? sketch_.load : sketch_.store;
      const std::int64_t packed = 2 * bytes(static_cast<BufferId>(b));
      packing.bytes += packed;
      if (in_place[b]) packing.in_place_bytes += packed;
      if (value.kind == ValueKind::query && outline.pass == Pass::backward) sketch_.load.bytes += delta_bytes(value);
    }
  }

  ProgramSketch run() {
    sketch_.steps.reserve(program_.steps.size());
    for (const Step& step : program_.steps) {
      ProgramSketch::Step out;
      out.number = step.number;
      out.due = step.due;
      out.lane = step.lane;
      step_ = &out;
      first_work_ = sketch_.works.size();
      first_send_ = sketch_.sends.size();
      first_receive_ = sketch_.receives.size();
      count_readers(step, 1);
      for (const Op& op : step.ops) std::visit([this](const auto& o) { add(o); }, op);
      count_readers(step, -1);
      sketch_.after.insert(sketch_.after.end(), step.after.begin(), step.after.end());
      out.work_end = static_cast<std::uint32_t>(sketch_.works.size());
      out.sends_end = static_cast<std::uint32_t>(sketch_.sends.size());
      out.receives_end = static_cast<std::uint32_t>(sketch_.receives.size());
      out.after_end = static_cast<std::uint32_t>(sketch_.after.size());
      sketch_.steps.push_back(out);
    }
    sketch_.works.shrink_to_fit();
    sketch_.sends.shrink_to_fit();
    sketch_.receives.shrink_to_fit();
    sketch_.after.shrink_to_fit();
    return std::move(sketch_);
  }

 private:
  /// Adds `each` to the number of tiles that read a key segment, for all tiles of a step.
  void count_readers(const Step& step, int each) {
    const auto count = [&](const std::vector<KeyChunk>& keys) {
      for (const KeyChunk& chunk : keys) readers_[index(chunk.key_value)] += each;
    };
    for (const Op& op : step.ops) {
      if (const auto* const forward = std::get_if<Attend>(&op)) count(forward->keys);
      if (const auto* const backward = std::get_if<AttendBackward>(&op)) count(backward->keys);
    }
  }

  /// o and its gradient are read.
  std::int64_t delta_bytes(const Value& query) const {
    const Problem& problem = outline_.sharding.problem;
    const std::int64_t rows =
        problem.batch * tiles_.query(query.segment).run.count * outline_.sharding.groups[index(query.group)].q_count;
    return rows * problem.value_dim *
           static_cast<std::int64_t>(size_of(problem.dtype) + size_of(problem.accumulator()));
  }

  const BufferDecl& decl(BufferId buffer) const { return program_.buffers[index(buffer)]; }
  std::int64_t bytes(BufferId buffer) const { return bytes_[index(buffer)]; }

  double tokens_of(const Value& key_side) const {
    return static_cast<double>(outline_.sharding.problem.batch * tiles_.key(key_side.segment).run.count);
  }
  std::int64_t sent_bytes(BufferId buffer) const {
    const auto& [value, dtype, own, slot] = decl(buffer);
    if (latents_ == nullptr || !is_key_side(value.kind)) return bytes(buffer);
    return static_cast<std::int64_t>(tokens_of(value)) * (latents_->expanded + latents_->taken) *
           static_cast<std::int64_t>(size_of(dtype));
  }
  /// Latents that lie where keys and values are wanted.
  void expand(BufferId buffer) {
    if (!as_latents_[index(buffer)]) return;
    as_latents_[index(buffer)] = false;
    const Problem& problem = outline_.sharding.problem;
    const Value& value = decl(buffer).value;
    const int products = outline_.pass == Pass::forward ? 1 : 3;
    const int made = problem.head_dim - latents_->taken + problem.value_dim;
    const int heads = outline_.sharding.groups[index(value.group)].kv_count;
    step_->expansion_flops += products * 2.0 * tokens_of(value) * latents_->expanded * heads * made;
  }

  void add(const Send& op) {
    if (sketch_.sends.size() == first_send_ || sketch_.sends.back().peer != op.to) sketch_.sends.push_back({0, op.to});
    sketch_.sends.back().bytes += sent_bytes(op.source);
  }
  void add(const Recv& op) {
    as_latents_[index(op.into)] = latents_ != nullptr && decl(op.into).value.kind == ValueKind::key_value;
    if (sketch_.receives.size() == first_receive_ || sketch_.receives.back() != op.from) {
      sketch_.receives.push_back(op.from);
    }
  }
  void add(const Attend& op) { touch(op.output, attend(op), times_touched(op.start)); }
  void add(const AttendBackward& op) { touch(op.dquery, attend(op), times_touched(op.start)); }

  static double share_of(std::int64_t part, std::int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  }
  static std::int64_t part_of(std::int64_t bytes, double share) {
    return static_cast<std::int64_t>(share * static_cast<double>(bytes));
  }
  /// How often a result is touched: written, and before that read where tiles add to it.
  static int times_touched(Start start) { return start == Start::carry ? 2 : 1; }
  void touch(BufferId buffer, double share, int times) { step_->tile_bytes += part_of(times * bytes(buffer), share); }

  /// Returns the share of the queries that see a key.
  template <class O>
  double attend(const O& op) {
    const Value& query = decl(op.query).value;
    const std::int64_t heads = outline_.sharding.problem.batch * outline_.sharding.groups[index(query.group)].q_count;
    const Run& queries = tiles_.query(query.segment).run;
    double seeing = 0;
    for (const KeyChunk& chunk : op.keys) {
      expand(chunk.key_value);
      const SegmentId key = decl(chunk.key_value).value.segment;
      const Run& keys = tiles_.key(key).run;
      const auto [pairs, met, reach] = seen_.of(query.segment, key);
      const double seen = share_of(reach.keys, keys.count);
      const auto of_heads = [&](std::int64_t count) { return static_cast<double>(count) * static_cast<double>(heads); };
      const auto rows_of = [&](std::int64_t count, auto tiles) { return of_heads(count) / static_cast<double>(tiles); };
      work({of_heads(pairs), of_heads(met), heads, static_cast<std::int32_t>(queries.count),
            static_cast<std::int32_t>(keys.count),
            pairs == queries.count * keys.count ? Coverage::full : Coverage::partial,
            part_of(bytes(chunk.key_value), seen),
            rows_of(queries.count, op.keys.size()) + rows_of(keys.count, readers_[index(chunk.key_value)])});
      seeing += share_of(reach.queries, queries.count);
      touch(chunk.key_value, seen, 1);
      if (outline_.pass == Pass::backward) touch(chunk.dkey_value, seen, times_touched(chunk.start));
    }
    seeing = std::min(1.0, seeing);
    touch(op.query, seeing, 1);
    return seeing;
  }
  void work(const ProgramSketch::Work& work) {
    for (std::size_t w = first_work_; w < sketch_.works.size(); ++w) {
      ProgramSketch::Work& same = sketch_.works[w];
      if (same.queries == work.queries && same.keys == work.keys && same.coverage == work.coverage) {
        same.pairs += work.pairs;
        same.computed_pairs += work.computed_pairs;
        same.tiles += work.tiles;
        same.key_bytes += work.key_bytes;
        same.rows += work.rows;
        return;
      }
    }
    sketch_.works.push_back(work);
  }
  void add(const Merge& op) { step_->touched_bytes += bytes(op.from) + 2 * bytes(op.into); }
  void add(const Accumulate& op) { step_->touched_bytes += bytes(op.from) + 2 * bytes(op.into); }
  void add(const Convert& op) { step_->touched_bytes += bytes(op.from) + bytes(op.into); }
  void add(const Clear& op) { step_->touched_bytes += bytes(op.buffer); }

  const Outline& outline_;
  const SeenTiles& seen_;
  const Tiles& tiles_;
  const RankProgram& program_;
  const Latents* latents_;
  std::vector<bool> as_latents_;     // by buffer: has come as latents
  std::vector<int> readers_;         // by buffer: tiles of the step that read these keys
  std::vector<std::int64_t> bytes_;  // by buffer, which thousands of tiles touch
  ProgramSketch sketch_;
  ProgramSketch::Step* step_ = nullptr;
  std::size_t first_work_ = 0, first_send_ = 0, first_receive_ = 0;
};

}  // namespace

ProgramSketch sketch(const Outline& outline, const SeenTiles& seen, Rank rank, const RankProgram& program,
                     const Latents* latents, bool on_cores) {
  return Sketcher(outline, seen, rank, program, latents, on_cores).run();
}

ProgramSketch sketch(const Outline& outline, const Tiles& tiles, Rank rank, const RankProgram& program, int block,
                     const Latents* latents) {
  return sketch(outline, SeenTiles(tiles, block), rank, program, latents);
}

}  // namespace distattn

#include "kernels/vector/backward_plan.hpp"

#include <algorithm>
#include <tuple>

#include "distattn/index.hpp"
#include "kernels/vector/head_rows.hpp"
#include "kernels/vector/ranges.hpp"

namespace distattn::kernels::vector {

namespace {

// More would make the list of meetings long and their turns no better.
constexpr std::int64_t most_query_blocks = 512;

// Columns are as large as can be, because every column packs all its queries, but not so large that a few cores have
// nothing to do. (Results may not depend on how many threads there are.)
constexpr std::int64_t wanted_tasks = 16;

std::int64_t block_rows(const AttendBackwardArgs& args, std::int64_t rows) {
  const std::int64_t units = (args.queries.count + rows - 1) / rows;
  return std::max<std::int64_t>(1, (units + most_query_blocks - 1) / most_query_blocks) * rows;
}

std::int32_t heads_of(const TileShape& shape) { return static_cast<std::int32_t>(shape.batch * shape.heads.q_count); }
std::int32_t kv_heads_of(const TileShape& shape) {
  return static_cast<std::int32_t>(shape.batch * shape.heads.kv_count);
}

// Indices of keys that some of the queries may see through the band.
IndexRange keys_seen(const Band& band, const Run& queries, const Run& keys) {
  const std::int64_t first = std::max(band.q0, queries.at(0));
  const std::int64_t last = std::min(band.q1 - 1, queries.at(queries.count - 1));
  return indices_within(keys, std::max(band.k0, first - band.hi), std::min(band.k1, last - band.lo + 1));
}

}  // namespace

void BackwardPlan::make(std::span<const AttendBackwardArgs> operations, const Cut& cut) {
  queries.clear();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const AttendBackwardArgs& args = operations[i];
    queries.cut(static_cast<std::int32_t>(i), args.queries, args.keys, block_rows(args, cut.rows));
  }
  find_segments(operations);
  add_columns(operations, cut);
  meetings.clear();
  for (std::size_t block = 0; block < queries.blocks.size(); ++block) {
    add_meetings(operations[index(queries.blocks[block].operation)], static_cast<std::int32_t>(block));
  }
  gather_meetings();
  take_turns(operations);
  number_turns(operations);
  clear_unmet(operations);
}

void BackwardPlan::find_segments(std::span<const AttendBackwardArgs> operations) {
  segments_.clear();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    for (std::size_t s = 0; s < operations[i].keys.size(); ++s) {
      const KeySide& side = operations[i].keys[s];
      const auto known = std::ranges::find(segments_, side.dk.data, &Segment::dk);
      if (known == segments_.end()) {
        segments_.push_back({side.dk.data, static_cast<std::int32_t>(i), static_cast<std::int32_t>(s), side.carry, 0});
      } else {
        known->carry = known->carry && side.carry;
      }
    }
  }
}

void BackwardPlan::add_columns(std::span<const AttendBackwardArgs> operations, const Cut& cut) {
  const auto args_of = [&](const Segment& segment) -> const AttendBackwardArgs& {
    return operations[index(segment.operation)];
  };
  const auto keys_of = [&](const Segment& segment) { return args_of(segment).keys[index(segment.side)].keys.count; };
  std::int64_t all = 0;
  for (const Segment& segment : segments_) all += keys_of(segment) * kv_heads_of(args_of(segment).shape);
  column_keys_ = std::min(cut.most_keys, std::max<std::int64_t>(1, ceil_div(all, wanted_tasks * cut.keys)) * cut.keys);

  columns.clear();
  for (Segment& segment : segments_) {
    segment.first_column = static_cast<std::int32_t>(columns.size());
    for (std::int64_t first = 0; first < keys_of(segment); first += column_keys_) {
      columns.push_back({.operation = segment.operation,
                         .side = segment.side,
                         .first = first,
                         .count = std::min(column_keys_, keys_of(segment) - first),
                         .pairs = 0,
                         .meetings = 0,
                         .meetings_end = 0,
                         .carry = segment.carry});
    }
  }
}

void BackwardPlan::add_meetings(const AttendBackwardArgs& args, std::int32_t block) {
  const QueryBlock& rows = queries.blocks[index(block)];
  const Run positions = part_of(args.queries, rows.first, rows.rows);
  for (const Touch& touch : queries.touches_of(rows)) {
    const KeySide& side = args.keys[index(touch.side)];
    const Band& band = side.bands[index(touch.band)];
    const IndexRange seen = keys_seen(band, positions, side.keys);
    if (seen.empty()) continue;
    const std::int32_t first = std::ranges::find(segments_, side.dk.data, &Segment::dk)->first_column;
    for (std::int64_t c = seen.begin / column_keys_; c <= (seen.end - 1) / column_keys_; ++c) {
      const auto column = static_cast<std::int32_t>(first + c);
      const KeyColumn& part = columns[index(column)];
      const std::int64_t pairs = visible_pairs(band, positions, part_of(side.keys, part.first, part.count));
      if (pairs > 0) meetings.push_back({column, rows.operation, touch.side, block, 0, pairs});
    }
  }
}

/// Bands that meet in the same keys are one meeting. Queries mostly see keys before them: columns that start side by
/// side start with the same queries when they take the last ones first, and do not wait for each other.
void BackwardPlan::gather_meetings() {
  const auto place = [](const Meeting& meeting) {
    return std::tuple(meeting.column, meeting.operation, -meeting.block, meeting.side);
  };
  std::ranges::sort(meetings, {}, place);
  std::size_t kept = 0;
  for (const Meeting& meeting : meetings) {
    if (kept > 0 && place(meetings[kept - 1]) == place(meeting)) {
      meetings[kept - 1].pairs += meeting.pairs;
    } else {
      meetings[kept++] = meeting;
    }
  }
  meetings.resize(kept);
  std::size_t at = 0;
  for (std::size_t column = 0; column < columns.size(); ++column) {
    columns[column].meetings = at;
    for (; at < kept && meetings[at].column == static_cast<std::int32_t>(column); ++at) {
      columns[column].pairs += meetings[at].pairs;
    }
    columns[column].meetings_end = at;
  }
}

/// Longest first; among equals a head after the other, so that neighbours in the list add to different sums.
void BackwardPlan::take_turns(std::span<const AttendBackwardArgs> operations) {
  std::ranges::sort(columns, [](const KeyColumn& a, const KeyColumn& b) {
    return std::tie(b.pairs, a.meetings) < std::tie(a.pairs, b.meetings);
  });
  met_.assign(queries.blocks.size(), 0);
  tasks.clear();
  for (std::size_t i = 0; i < columns.size(); ++i) {
    for (std::size_t m = columns[i].meetings; m < columns[i].meetings_end; ++m) {
      meetings[m].turn = met_[index(meetings[m].block)]++;
    }
    if (columns[i].carry && columns[i].pairs == 0) continue;
    const std::int32_t heads = kv_heads_of(operations[index(columns[i].operation)].shape);
    for (std::int32_t head = 0; head < heads; ++head) tasks.push_back({static_cast<std::int32_t>(i), head});
  }
}

void BackwardPlan::number_turns(std::span<const AttendBackwardArgs> operations) {
  first_turn_.clear();
  std::int32_t counts = 0;
  for (const QueryBlock& block : queries.blocks) {
    first_turn_.push_back(counts);
    counts += heads_of(operations[index(block.operation)].shape);
  }
  turns.assign(index(counts), 0);
}

void BackwardPlan::clear_unmet(std::span<const AttendBackwardArgs> operations) {
  cleared.clear();
  for (std::size_t i = 0; i < queries.blocks.size(); ++i) {
    const QueryBlock& block = queries.blocks[i];
    const AttendBackwardArgs& args = operations[index(block.operation)];
    if (args.carry || met_[i] > 0) continue;
    const int count = args.shape.heads.q_count;
    for (std::int32_t head = 0; head < heads_of(args.shape); ++head) {
      cleared.push_back(
          {rows_of_head(args.dq, head / count, head % count, block.first), block.rows, args.shape.head_dim});
    }
  }
}

}  // namespace distattn::kernels::vector

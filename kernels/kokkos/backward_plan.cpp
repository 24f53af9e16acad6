#include "kernels/kokkos/backward_plan.hpp"

#include <algorithm>
#include <tuple>

#include "kernels/kokkos/head_rows.hpp"
#include "kernels/kokkos/ranges.hpp"

namespace distattn::kernels::kokkos {

namespace {

// A task packs its keys and adds to their gradients once, so that chunks of queries are as large as can be: at least
// this many blocks, and no more chunks than give this many threads something to do. (Results may not depend on how
// many threads there are.)
constexpr std::int64_t least_query_blocks = 4;
constexpr std::int64_t most_threads = 128;
constexpr std::int64_t most_key_chunks = 32;

std::int64_t chunk_size(std::int64_t count, std::int64_t unit, std::int64_t least_units, std::int64_t most_chunks) {
  const std::int64_t units = (count + unit - 1) / unit;
  return std::max(least_units, (units + most_chunks - 1) / most_chunks) * unit;
}

std::int32_t heads_of(const TileShape& shape) { return static_cast<std::int32_t>(shape.batch * shape.heads.q_count); }
std::int32_t kv_heads_of(const TileShape& shape) {
  return static_cast<std::int32_t>(shape.batch * shape.heads.kv_count);
}

std::int32_t chunks_of(std::int64_t count, std::int64_t chunk) {
  return static_cast<std::int32_t>((count + chunk - 1) / chunk);
}

// Key head of a query head, and its place among the query heads of that key head.
struct KeyHead {
  std::int32_t kv, place;
};
KeyHead key_head(const TileShape& shape, std::int32_t head) {
  const int h = head % shape.heads.q_count, kv = shape.heads.kv_of(h);
  int first = h;
  while (first > 0 && shape.heads.kv_of(first - 1) == kv) --first;
  return {head / shape.heads.q_count * shape.heads.kv_count + kv, h - first};
}

// Indices of keys that some of the queries may see through the band.
IndexRange keys_seen(const Band& band, const Run& queries, const Run& keys) {
  const std::int64_t first = std::max(band.q0, queries.at(0));
  const std::int64_t last = std::min(band.q1 - 1, queries.at(queries.count - 1));
  return indices_within(keys, std::max(band.k0, first - band.hi), std::min(band.k1, last - band.lo + 1));
}

}  // namespace

std::int64_t BackwardPlan::query_chunk_rows(const AttendBackwardArgs& args, std::int64_t rows) {
  const std::int64_t heads = heads_of(args.shape), chunks = (most_threads + heads - 1) / heads;
  return chunk_size(args.queries.count, rows, least_query_blocks, chunks);
}

std::int64_t BackwardPlan::key_chunk_keys(const KeySide& side, std::int64_t keys) {
  return chunk_size(side.keys.count, keys, 1, most_key_chunks);
}

void BackwardPlan::make(std::span<const AttendBackwardArgs> operations, std::int64_t rows, std::int64_t keys) {
  queries.clear();
  tasks.clear();
  cleared.clear();
  std::int32_t sums_count = 0;
  for (const auto& args : operations) {
    sums_count += heads_of(args.shape) * chunks_of(args.queries.count, query_chunk_rows(args, rows));
  }
  number_key_sums(operations, keys, sums_count);
  std::int32_t query_sum = 0;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const auto& args = operations[i];
    const std::int64_t chunk = query_chunk_rows(args, rows);
    const std::size_t first = queries.blocks.size();
    queries.cut(static_cast<std::int32_t>(i), args.queries, args.keys, chunk);
    for (std::size_t block = first; block < queries.blocks.size(); ++block) {
      add_tasks(args, block, chunk, keys, query_sum);
    }
    query_sum += heads_of(args.shape) * chunks_of(args.queries.count, chunk);
  }
  take_turns(operations);
  clear_untouched(operations, rows, keys);
  std::fill(sums.begin(), sums.end(), 0);
}

void BackwardPlan::number_key_sums(std::span<const AttendBackwardArgs> operations, std::int64_t keys,
                                   std::int32_t first) {
  key_sums_.clear();
  for (const auto& args : operations) {
    for (const auto& side : args.keys) {
      const auto known = std::find_if(key_sums_.begin(), key_sums_.end(),
                                      [&](const KeySums& entry) { return entry.dk == side.dk.data; });
      if (known != key_sums_.end()) {
        known->carry = known->carry && side.carry;
        continue;
      }
      key_sums_.push_back({side.dk.data, first, side.carry});
      first += kv_heads_of(args.shape) * chunks_of(side.keys.count, key_chunk_keys(side, keys));
    }
  }
  sums.assign(static_cast<std::size_t>(first), 0);
}

const BackwardPlan::KeySums& BackwardPlan::sums_of(const KeySide& side) const {
  return *std::find_if(key_sums_.begin(), key_sums_.end(),
                       [&](const KeySums& entry) { return entry.dk == side.dk.data; });
}

void BackwardPlan::clear_untouched(std::span<const AttendBackwardArgs> operations, std::int64_t rows,
                                   std::int64_t keys) {
  const auto clear = [&](const Rows& values, std::int64_t batch, int heads, std::int64_t count, std::int64_t chunk,
                         int dim, std::int32_t sum) {
    for (std::int64_t b = 0; b < batch; ++b) {
      for (int head = 0; head < heads; ++head) {
        for (std::int64_t first = 0; first < count; first += chunk, ++sum) {
          if (sums[static_cast<std::size_t>(sum)] > 0) continue;
          cleared.push_back({rows_of_head(values, b, head, first), std::min(chunk, count - first), dim});
        }
      }
    }
  };
  std::int32_t query_sum = 0;
  for (const auto& args : operations) {
    const TileShape& shape = args.shape;
    const int heads = shape.heads.q_count, kv_heads = shape.heads.kv_count;
    const std::int64_t chunk = query_chunk_rows(args, rows);
    if (!args.carry) clear(args.dq, shape.batch, heads, args.queries.count, chunk, shape.head_dim, query_sum);
    query_sum += heads_of(shape) * chunks_of(args.queries.count, chunk);
    for (const auto& side : args.keys) {
      if (side.carry) continue;
      const std::int32_t sum = sums_of(side).first;
      const std::int64_t size = key_chunk_keys(side, keys);
      clear(side.dk, shape.batch, kv_heads, side.keys.count, size, shape.head_dim, sum);
      clear(side.dv, shape.batch, kv_heads, side.keys.count, size, shape.value_dim, sum);
    }
  }
}

void BackwardPlan::add_tasks(const AttendBackwardArgs& args, std::size_t block, std::int64_t rows, std::int64_t keys,
                             std::int32_t first_query_sum) {
  const QueryBlock& chunk = queries.blocks[block];
  const Run positions = part_of(args.queries, chunk.first, chunk.rows);
  const auto query_chunk = static_cast<std::int32_t>(chunk.first / rows);
  const std::int32_t query_chunks = chunks_of(args.queries.count, rows);
  const std::size_t first_task = tasks.size();
  for (std::size_t t = chunk.touches; t < chunk.touches_end; ++t) {
    const Touch& touch = queries.touches[t];
    const KeySide& side = args.keys[static_cast<std::size_t>(touch.side)];
    const Band& band = side.bands[static_cast<std::size_t>(touch.band)];
    const std::int64_t size = key_chunk_keys(side, keys);
    const IndexRange seen = keys_seen(band, positions, side.keys);
    if (seen.empty()) continue;
    for (std::int64_t c = seen.begin / size; c <= (seen.end - 1) / size; ++c) {
      const Run part = part_of(side.keys, c * size, std::min(size, side.keys.count - c * size));
      const std::int64_t pairs = visible_pairs(band, positions, part);
      if (pairs == 0) continue;
      tasks.push_back({.pairs = pairs,
                       .operation = chunk.operation,
                       .side = touch.side,
                       .query_chunk = query_chunk,
                       .key_chunk = static_cast<std::int32_t>(c),
                       .query_block = static_cast<std::int32_t>(block)});
    }
  }
  // Bands that meet in the same keys are one task.
  const auto begin = tasks.begin() + static_cast<std::ptrdiff_t>(first_task);
  std::sort(begin, tasks.end(), [](const BackwardTask& a, const BackwardTask& b) {
    return std::tie(a.side, a.key_chunk, a.pairs) < std::tie(b.side, b.key_chunk, b.pairs);
  });
  std::size_t kept = first_task;
  for (std::size_t i = first_task; i < tasks.size(); ++i) {
    if (kept > first_task && tasks[kept - 1].side == tasks[i].side && tasks[kept - 1].key_chunk == tasks[i].key_chunk) {
      tasks[kept - 1].pairs += tasks[i].pairs;
    } else {
      tasks[kept++] = tasks[i];
    }
  }
  tasks.resize(kept);
  // One head's tasks stand there now: the others' are like them.
  const std::int32_t heads = heads_of(args.shape);
  const std::int32_t query_heads_per_key_head = chunks_of(args.shape.heads.q_count, args.shape.heads.kv_count);
  for (std::int32_t head = heads - 1; head >= 0; --head) {
    const KeyHead of = key_head(args.shape, head);
    for (std::size_t i = first_task; i < kept; ++i) {
      BackwardTask task = tasks[i];
      const KeySide& side = args.keys[static_cast<std::size_t>(task.side)];
      const std::int32_t key_chunks = chunks_of(side.keys.count, key_chunk_keys(side, keys));
      // Within a round, query heads of one key head meet different chunks of its keys, one after the other.
      const std::int32_t row = query_chunk * query_heads_per_key_head + of.place;
      task.head = head;
      task.order = of.place * kv_heads_of(args.shape) + of.kv;
      task.round = ((task.key_chunk - row) % key_chunks + key_chunks) % key_chunks;
      task.query_sum = first_query_sum + head * query_chunks + query_chunk;
      task.key_sum = sums_of(side).first + of.kv * key_chunks + task.key_chunk;
      if (head == 0) {
        tasks[i] = task;
      } else {
        tasks.push_back(task);
      }
    }
  }
}

void BackwardPlan::take_turns(std::span<const AttendBackwardArgs> operations) {
  // Longest first; among equals a round after the other, so that neighbours in the list can run side by side.
  std::sort(tasks.begin(), tasks.end(), [](const BackwardTask& a, const BackwardTask& b) {
    return std::tie(b.pairs, a.round, a.operation, a.query_chunk, a.order, a.side, a.key_chunk) <
           std::tie(a.pairs, b.round, b.operation, b.query_chunk, b.order, b.side, b.key_chunk);
  });
  for (BackwardTask& task : tasks) {
    task.query_turn = sums[static_cast<std::size_t>(task.query_sum)]++;
    task.key_turn = sums[static_cast<std::size_t>(task.key_sum)]++;
    const AttendBackwardArgs& args = operations[static_cast<std::size_t>(task.operation)];
    task.starts_queries = task.query_turn == 0 && !args.carry;
    task.starts_keys = task.key_turn == 0 && !sums_of(args.keys[static_cast<std::size_t>(task.side)]).carry;
  }
}

}  // namespace distattn::kernels::kokkos

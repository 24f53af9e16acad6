#pragma once
/// Time on a machine that was described, not built.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "distattn/band.hpp"
#include "distattn/layout.hpp"
#include "distattn/machine.hpp"
#include "distattn/schedule.hpp"
#include "distattn/timeline.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// A rank program reduced to what takes time: kept where programs are dropped. Flat arrays, because a plan holds the
/// sketches of thousands of ranks at once; the entries of step i end where those of step i+1 begin.
struct ProgramSketch {
  /// The tiles of one step that have one shape. Of all their query heads and sequences:
  struct Work {
    double pairs = 0;                    ///< visible ones; of many heads they pass 64 bits
    double met_pairs = 0;                ///< those that kernels compute
    std::int64_t tiles = 0;              ///< of one head each
    std::int32_t queries = 0, keys = 0;  ///< tokens of a tile's two segments
    Coverage coverage = Coverage::full;  ///< full or partial
    std::int64_t key_bytes = 0;          ///< of keys and values that are seen, once for all heads that read them

    /// Side of the square tile with as many visible pairs for every row of queries and keys, so that what rows take
    /// besides (reading, packing, writing) weighs the same in both; at least 1. A partial square is half visible.
    double square_tile() const {
      const double area = pairs / static_cast<double>(tiles) * (coverage == Coverage::full ? 1 : 2);
      return std::max(1.0, 2 * area / (static_cast<double>(queries) + keys));
    }
  };
  /// What a step sends to one peer: its values joined.
  struct Message {
    std::int64_t bytes = 0;
    Rank peer = 0;
  };
  struct Step {
    std::int64_t touched_bytes = 0;  ///< read and written by merges and conversions
    std::int64_t tile_bytes = 0;  ///< read and written by tiles, once by each: rows that see a key, keys that are seen
    std::int32_t number = 0, due = 0;
    std::uint32_t work_end = 0, sends_end = 0, receives_end = 0, after_end = 0;
    Lane lane = Lane::compute;
  };

  /// Bytes read and written to pack own inputs, or to unpack own results.
  struct Packing {
    std::int64_t bytes = 0;
    /// Of these: of values that cores use where they are (better_in_place).
    std::int64_t in_place_bytes = 0;
  };

  Rank rank = 0;
  Packing load, store;  ///< load: also what delta is computed from
  std::vector<Step> steps;
  std::vector<Work> works;
  std::vector<Message> sends;  ///< of a step: by peer
  std::vector<Rank> receives;  ///< of a step: by peer; the sender knows the bytes
  std::vector<StepId> after;

  std::span<const Work> works_of(std::size_t step) const { return part(works, step, &Step::work_end); }
  std::span<const Message> sends_of(std::size_t step) const { return part(sends, step, &Step::sends_end); }
  std::span<const Rank> receives_of(std::size_t step) const { return part(receives, step, &Step::receives_end); }
  std::span<const StepId> after_of(std::size_t step) const { return part(after, step, &Step::after_end); }

 private:
  template <class T>
  std::span<const T> part(const std::vector<T>& all, std::size_t step, std::uint32_t Step::*end) const {
    const std::size_t begin = step == 0 ? 0 : steps[step - 1].*end;
    return std::span(all).subspan(begin, steps[step].*end - begin);
  }
};

/// `tiles` is the outline's sharding with its lookups; `block` as in TileCosts. Safe to call from several threads.
ProgramSketch sketch(const Outline& outline, const Tiles& tiles, Rank rank, const RankProgram& program, int block = 1);

/// Share of rank-time without compute on infinitely fast links, work counted in visible pairs: a rank's step begins
/// when its last has ended, and ends when its tiles have and when what is due has been sent. Sketches are
/// those of all ranks, in their order. 0 where nothing is computed.
double ideal_idle(std::span<const ProgramSketch> ranks);

/// When every step of a proved schedule would begin and end: a step waits for its lane and for what it comes after, a
/// message for both its ends and their ports. Ranks on cores share them, as do copies between them, which are made by
/// the lane of the rank that comes second, one after the other. Before its first step a rank packs its inputs, after
/// its last it unpacks its results: the time is that of a whole call, which all ranks begin together. `ranks` holds the
/// sketches of all ranks, in their order; `threads` is how many threads a rank computes with where the machine has
/// cores. A far link that a node shares is tried two ways, its ranks taking turns or each having an equal part; the
/// faster one stands. Nothing in either makes a message late because another one is early, so that overlapped schedules
/// never take longer than serial ones (but on shared cores). Throws Error(usage) when the machine has too few ranks or
/// states no rates for the element type.
Timeline simulate(const Outline& outline, std::span<const ProgramSketch> ranks, const Machine& machine,
                  int threads = 1);

}  // namespace distattn
#pragma GCC visibility pop

#pragma once
/// Predicts times on a described machine.

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

/// What keys and values are a product of, as those of MLA, of a token and all key heads together: `expanded` numbers
/// that a matrix makes them of, and `taken` numbers that every key ends with as they are. DeepSeek-V3: 512 and 64.
/// Ranks that send latents instead of keys and values expand what they receive before its first use. In a backward pass
/// they also make gradients of latents, and their part of that of the matrix, of gradients of keys and values: three
/// products instead of one.
struct Latents {
  int expanded = 0, taken = 0;
};

/// A rank program reduced to what takes time, so that the program itself can be dropped. The arrays are flat, because a
/// plan holds the sketches of thousands of ranks; the entries of step i end where those of step i+1 begin.
struct ProgramSketch {
  /// The tiles of one step that have the same shape. Figures are sums over query heads and sequences.
  struct Work {
    double pairs = 0;                    ///< visible pairs; a double, because with many heads they exceed 64 bits
    double computed_pairs = 0;           ///< computed pairs
    std::int64_t tiles = 0;              ///< tiles of one head each
    std::int32_t queries = 0, keys = 0;  ///< tokens of a tile's two segments
    Coverage coverage = Coverage::full;  ///< full or partial
    std::int64_t key_bytes = 0;          ///< keys and values that are seen, counted once for all heads that read them
    /// The tiles' rows of queries and of keys; a row that several tiles of the step have is shared equally among them.
    double rows = 0;

    /// Side of the square tile that has the same number of visible pairs for each row of queries and keys, so that the
    /// costs of rows (reading, packing, writing) have the same weight; at least 1. A partial square counts as half
    /// visible. By tile: every tile has all of its rows. By launch: each row counts once in a step.
    double side(RatesBy by) const {
      const double area = pairs * (coverage == Coverage::full ? 1 : 2);
      const double of_tiles = static_cast<double>(tiles) * (static_cast<double>(queries) + keys);
      return std::max(1.0, 2 * area / (by == RatesBy::launch ? rows : of_tiles));
    }
  };
  /// What a step sends to one peer: its values joined into one message.
  struct JoinedMessage {
    std::int64_t bytes = 0;
    Rank peer = 0;
  };
  struct Step {
    std::int64_t touched_bytes = 0;  ///< read and written by merges and conversions
    std::int64_t tile_bytes = 0;     ///< read and written by tiles: rows that see a key, keys that are seen
    double expansion_flops = 0;      ///< of products with latents that have come and are first used here
    std::int32_t number = 0, due = 0;
    std::uint32_t work_end = 0, sends_end = 0, receives_end = 0, after_end = 0;
    Lane lane = Lane::compute;
  };

  /// Bytes read and written to pack a rank's own inputs, or to unpack its results.
  struct Packing {
    std::int64_t bytes = 0;
    /// Bytes of these that cores read or write in place (use_in_place).
    std::int64_t in_place_bytes = 0;
  };

  Rank rank = 0;
  Packing load, store;  ///< load includes what delta is computed from
  std::vector<Step> steps;
  std::vector<Work> works;
  std::vector<JoinedMessage> sends;  ///< of a step, by peer
  std::vector<Rank> receives;        ///< of a step, by peer; the sender has the bytes
  std::vector<StepId> after;

  std::span<const Work> works_of(std::size_t step) const { return part(works, step, &Step::work_end); }
  std::span<const JoinedMessage> sends_of(std::size_t step) const { return part(sends, step, &Step::sends_end); }
  std::span<const Rank> receives_of(std::size_t step) const { return part(receives, step, &Step::receives_end); }
  std::span<const StepId> after_of(std::size_t step) const { return part(after, step, &Step::after_end); }

 private:
  template <class T>
  std::span<const T> part(const std::vector<T>& all, std::size_t step, std::uint32_t Step::*end) const {
    const std::size_t begin = step == 0 ? 0 : steps[step - 1].*end;
    return std::span(all).subspan(begin, steps[step].*end - begin);
  }
};

/// `tiles` are the lookups of the outline's sharding; `block` is that of TileCosts. With latents, messages are of them.
/// Thread-safe.
ProgramSketch sketch(const Outline& outline, const Tiles& tiles, Rank rank, const RankProgram& program, int block = 1,
                     const Latents* latents = nullptr);

/// Share of rank-time without compute on infinitely fast links, with work counted in visible pairs. A rank's step
/// begins when its previous one has ended, and ends when its tiles are done and what is due has been sent. `ranks`
/// holds the sketches of all ranks in order. 0 if nothing is computed.
double ideal_idle(std::span<const ProgramSketch> ranks);

/// Seconds that no schedule of these tiles can be below: their work spread evenly over all ranks at the best rate of
/// the machine, and packing. Messages take no time. `ranks` and `threads` are those of simulate().
double lower_bound(const Outline& outline, std::span<const ProgramSketch> ranks, const Machine& machine,
                   int threads = 1);

/// Predicts when every step of a proved schedule begins and ends, for a whole call that all ranks begin together:
/// before its first step a rank packs its inputs, after its last it unpacks its results. `ranks` holds the sketches of
/// all ranks in order; `threads` is the number of threads of each rank if the machine has cores. Throws Error(usage) if
/// the machine has too few ranks or states no rates for the element type.
///
/// A step waits for its lane and for the steps that it comes after; a message waits for both of its ranks and for their
/// links. Ranks on cores share the cores, also for copies between ranks, which the lane of the later of the two ranks
/// makes one after the other. For a far link that the ranks of a node share, two policies are tried, taking turns and
/// equal shares, and the faster result is returned. In both, no message becomes later because another one becomes
/// earlier, so that an overlapped schedule never takes longer than the serial one (except on shared cores).
Timeline simulate(const Outline& outline, std::span<const ProgramSketch> ranks, const Machine& machine,
                  int threads = 1);

}  // namespace distattn
#pragma GCC visibility pop

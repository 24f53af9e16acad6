#pragma once
/// Proof: runs programs on sets instead of numbers and reports every rule that a program breaks (docs/mathematics.md).

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "distattn/schedule.hpp"

#pragma GCC visibility push(default)
namespace distattn {

enum class FindingKind : std::uint8_t {
  malformed,    ///< an index out of range, an unused slot, an operation of the wrong lane or pass, a wrong size
  unmatched,    ///< a message without its partner, under another step, or with another value or type
  early,        ///< a buffer read before its value has arrived
  late,         ///< a buffer read after its slot was reused
  misplaced,    ///< a buffer that holds a value other than the operation's
  coverage,     ///< a tile computed twice or never, or merged twice or never
  altered,      ///< a partial result altered after it was sent
  undelivered,  ///< a result that does not reach its owner
  leak,         ///< a partial result that nobody sends, or a received one that nobody merges
  race,         ///< two steps of different lanes touch a slot and nothing orders them
  deadlock,     ///< a step waits for one that cannot run before it
  mask,         ///< bands of the mask that share a pair
};
const char* name_of(FindingKind kind);

/// One broken rule. rank and step are −1 if the finding concerns all of them.
struct Finding {
  FindingKind kind{};
  Rank rank = -1;
  int step = -1;
  std::string message;  ///< names rank, step and value
};

/// Counts of a proved schedule; per-rank figures are indexed by rank.
struct Counts {
  int steps = 0;
  std::int64_t messages = 0;            ///< values sent
  std::int64_t messages_coalesced = 0;  ///< messages after joining the values of one step, lane and peer
  std::int64_t tiles = 0;               ///< tiles computed
  std::vector<std::int64_t> bytes_sent, bytes_far;
  std::vector<std::int64_t>
      peak_remote_values;  ///< values of other ranks held at a time, as the executable model counts them
  std::vector<std::int64_t> peak_remote_bytes;  ///< bytes of slots that ever hold a value of another rank
  std::vector<std::int64_t> memory_bytes;       ///< bytes of all slots
};

/// Largest and mean over ranks (at least one).
std::int64_t largest(const std::vector<std::int64_t>& by_rank);
double mean(const std::vector<std::int64_t>& by_rank);

/// The most memory_bytes that a rank needs to hold the buffers of all these passes, which have the same number of
/// ranks.
std::int64_t memory_side_by_side(const std::vector<const Counts*>& passes);

struct VerifyReport {
  std::vector<Finding> findings;  ///< empty: proved
  Counts counts;
  bool proved() const { return findings.empty(); }
};

/// Takes the program of each rank once, in any order. Keeps sums over ranks, not the programs. The outline must pass
/// check(). add() is thread-safe.
class Verifier {
 public:
  explicit Verifier(const Outline& outline);
  Verifier(const Outline& outline, std::shared_ptr<const Tiles> tiles);  ///< with existing lookups
  ~Verifier();
  void add(Rank rank, const RankProgram& program);
  VerifyReport finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

VerifyReport verify(const Schedule& schedule);

}  // namespace distattn
#pragma GCC visibility pop

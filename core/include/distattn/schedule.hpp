#pragma once
/// Schedules as plain data: what each rank does in each step, and in which buffers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "distattn/layout.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// What a buffer holds. Parts, each [batch][head][token][dim] and 64-byte aligned:
///  query:      q; in the backward pass q, do, lse, delta, shared, lse_low
///  key_value:  k, v; k alone if values lie in keys (Problem::shared_kv)
///  output:     o, lse, lse_low        — a partial (partial.hpp)
///  dquery:     dq, sums; at the owner of the queries dq, sums, squares
///  dkey_value: dk, dv; dk alone likewise, with dv added to its beginning
/// lse_low is the remainder of an fp32 lse, in fp16. Neither an output with 16-bit elements, which is one on the wire,
/// nor queries whose gradients travel so have one: they are not that precise.
///
/// shared is one vector for each key head, [batch][key head][1][dim] in fp32: about what keys have in common, or 0. The
/// gradient of a query is dq + sums · shared, so that a sum over some of the keys need not round in proportion to what
/// they share; sums, one for each row, has the element type of dq. squares, in fp32, says how far sums may be from 0 by
/// rounding alone. fp64 has neither lse_low nor shared, sums and squares.
enum class ValueKind : std::uint8_t { query, key_value, output, dquery, dkey_value };
const char* name_of(ValueKind kind);

constexpr bool is_input(ValueKind kind) { return kind == ValueKind::query || kind == ValueKind::key_value; }
constexpr bool is_key_side(ValueKind kind) { return kind == ValueKind::key_value || kind == ValueKind::dkey_value; }

/// One segment's tensors for one head group. `contributor` is the rank that accumulated a result; −1 for inputs.
struct Value {
  ValueKind kind = ValueKind::query;
  int group = 0;
  SegmentId segment{};
  Rank contributor = -1;
  friend auto operator<=>(const Value&, const Value&) = default;
};

/// Slots, and the parts of a buffer in its slot, begin on a multiple of this many bytes.
inline constexpr std::size_t buffer_alignment = 64;

/// Memory for one value, with a lifetime. Buffers with disjoint lifetimes may share a slot.
struct BufferDecl {
  Value value;
  DType dtype = DType::fp32;  ///< element type; statistics have the accumulator's type
  std::size_t bytes = 0;      ///< including the parts' alignment
  int slot = 0;               ///< index into RankProgram::slots
  friend bool operator==(const BufferDecl&, const BufferDecl&) = default;
};

/// Whether a kernel overwrites its output buffer or adds to what it holds.
enum class Start : std::uint8_t { fresh, carry };

/// A key segment's part of an attend: its values, and in the backward pass where its gradients go.
struct KeyChunk {
  BufferId key_value{};
  BufferId dkey_value{};       ///< backward only
  Start start = Start::fresh;  ///< how dkey_value starts; backward only
  friend bool operator==(const KeyChunk&, const KeyChunk&) = default;
};

struct Send {
  BufferId source{};
  Rank to = 0;
  friend bool operator==(const Send&, const Send&) = default;
};
struct Recv {
  BufferId into{};
  Rank from = 0;
  friend bool operator==(const Recv&, const Recv&) = default;
};
/// One query segment against several key segments: output (+)= attention over their visible pairs.
struct Attend {
  BufferId query{}, output{};
  std::vector<KeyChunk> keys;
  Start start = Start::fresh;
  friend bool operator==(const Attend&, const Attend&) = default;
};
/// Gradients of the same tiles, from the global LSE and delta of the query side.
struct AttendBackward {
  BufferId query{}, dquery{};
  std::vector<KeyChunk> keys;
  Start start = Start::fresh;  ///< how dquery starts
  friend bool operator==(const AttendBackward&, const AttendBackward&) = default;
};
/// into = into ⊕ from, for partial results (o, lse).
struct Merge {
  BufferId into{}, from{};
  friend bool operator==(const Merge&, const Merge&) = default;
};
/// into = into + from, for gradients.
struct Accumulate {
  BufferId into{}, from{};
  friend bool operator==(const Accumulate&, const Accumulate&) = default;
};
/// Converts a result to the wire's element type; statistics keep theirs.
struct Convert {
  BufferId into{}, from{};
  friend bool operator==(const Convert&, const Convert&) = default;
};
/// Sets a buffer to the identity: (0, −∞) for an output, 0 for gradients.
struct Clear {
  BufferId buffer{};
  friend bool operator==(const Clear&, const Clear&) = default;
};

/// Visit it without a default branch, so that code which does not handle a new operation fails to compile.
using Op = std::variant<Send, Recv, Attend, AttendBackward, Merge, Accumulate, Convert, Clear>;

/// Messages of a step that form one all-gather: every member of a row of ranks sends its buffer to all others.
/// `buffers` are ordered by owner and include this rank's own; they are adjacent in memory and of equal size, so that a
/// collective can fill them in place. The step's operations list these messages too, so that a transport without
/// collectives can ignore this.
struct Gather {
  std::vector<BufferId> buffers;
  friend bool operator==(const Gather&, const Gather&) = default;
};

/// Operations that start together. `number` is the step of the table, on every rank. When an exchange ends, all of its
/// messages have arrived; they are first used after step `due`, which equals `number` except for far messages that are
/// posted early. Messages of one (number, lane, due) form one group, in the order (peer, value) on both sides, so that
/// no tags are needed.
struct Step {
  int number = 0;
  int due = 0;
  Lane lane = Lane::compute;
  std::vector<Op> ops;
  std::vector<StepId> after;  ///< steps of other lanes that must end first; earlier steps of its own lane always do
  std::vector<Gather> gathers = {};  ///< in the same order on all ranks that share some
  friend bool operator==(const Step&, const Step&) = default;
};

/// Everything one rank does. A rank's own inputs and results have buffers too, filled before the first step and read
/// after the last. The order of `steps` is one in which they could run one by one.
struct RankProgram {
  std::vector<BufferDecl> buffers;
  std::vector<std::size_t> slots;  ///< size of each in bytes
  std::vector<Step> steps;
  friend bool operator==(const RankProgram&, const RankProgram&) = default;
};

/// What the programs of all ranks have in common.
struct Outline {
  std::string name;  ///< the schedule's name
  Sharding sharding;
  Pass pass = Pass::forward;
  Mode mode = Mode::overlapped;
  int node_size = 0;  ///< ranks per node; 0: one node
};

struct Schedule {
  Outline outline;
  std::vector<RankProgram> ranks;
};

/// Throws Error(usage) unless the sharding is valid (layout.hpp) and has `programs` ranks. Other functions require this
/// of an outline; verify() says whether its programs are right.
void check(const Outline& outline, std::size_t programs);

/// A part of a value's buffer.
struct PartShape {
  std::size_t offset = 0;  ///< bytes from the buffer's start, a multiple of 64
  int heads = 0;
  std::int64_t tokens = 0;
  int dim = 0;  ///< 1 for statistics
  DType dtype = DType::fp32;
  std::size_t bytes = 0;  ///< without padding: what a message carries
};
/// At most six parts, stored without an allocation, because plans make millions of these lists.
class PartShapes {
 public:
  std::size_t size() const { return count_; }
  const PartShape& operator[](std::size_t which) const { return parts_[which]; }
  const PartShape* begin() const { return parts_.data(); }
  const PartShape* end() const { return parts_.data() + count_; }
  void push_back(const PartShape& part) { parts_[count_++] = part; }

 private:
  std::array<PartShape, 6> parts_{};
  std::size_t count_ = 0;
};
/// The parts of `value` with elements of `dtype`, in the order of ValueKind's description.
PartShapes parts_of(const Outline& outline, const Value& value, DType dtype);
/// Bytes of a buffer for `value`: its parts, each rounded up to a multiple of 64.
std::size_t buffer_bytes(const Outline& outline, const Value& value, DType dtype);
/// Bytes that a message with `value` carries: the parts without padding.
std::size_t message_bytes(const Outline& outline, const Value& value, DType dtype);
/// Element type of a value in its own buffer: the problem's for inputs, the accumulator's for results.
DType dtype_of(const Outline& outline, ValueKind kind);
/// The owner of a value's segment.
Rank owner_of(const Outline& outline, const Value& value);
/// Whether two ranks are on different nodes.
bool is_far(const Outline& outline, Rank a, Rank b);
/// "kv(g0, 5)", "o(g0, 3)<-2"
std::string to_string(const Value& value);

/// Width of a text table if it is not printed on a terminal.
inline constexpr std::size_t usual_table_columns = 120;
/// Text form: a table with a row for each rank and a column for each step, like DistFlashAttn's Figure 1; with
/// `details` followed by every step of every rank. A table wider than `columns` is continued below.
std::string to_text(const Schedule& schedule, bool details, std::size_t columns = usual_table_columns);
/// JSON form; reads back with schedule_from_json. Throws Error(usage) naming the field that is wrong.
std::string to_json(const Schedule& schedule);
Schedule schedule_from_json(std::string_view text);
/// One schedule or a list of two, forward and backward, as `distattn show` prints both passes.
std::vector<Schedule> schedules_from_json(std::string_view text);

}  // namespace distattn
#pragma GCC visibility pop

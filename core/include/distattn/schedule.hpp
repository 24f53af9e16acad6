#pragma once
/// Schedules as plain data: what each rank does in each step, in which buffers. Printable, serialisable, provable.

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
///  query:      q; in the backward pass q, do, lse, delta, lse_low
///  key_value:  k, v
///  output:     o, lse, lse_low        — a partial (partial.hpp)
///  dquery:     dq
///  dkey_value: dk, dv
/// lse_low is what an fp32 lse cannot hold, in fp16; where statistics are fp64 there is none.
enum class ValueKind : std::uint8_t { query, key_value, output, dquery, dkey_value };
const char* name_of(ValueKind kind);

constexpr bool is_input(ValueKind kind) { return kind == ValueKind::query || kind == ValueKind::key_value; }
constexpr bool is_key_side(ValueKind kind) { return kind == ValueKind::key_value || kind == ValueKind::dkey_value; }

/// One segment's value for one head group. Results also name whose contribution they are: the rank that accumulated
/// them, −1 for inputs.
struct Value {
  ValueKind kind = ValueKind::query;
  int group = 0;
  SegmentId segment{};
  Rank contributor = -1;
  friend auto operator<=>(const Value&, const Value&) = default;
};

/// A piece of memory with a lifetime. Buffers whose lifetimes do not meet share a slot.
struct BufferDecl {
  Value value;
  DType dtype = DType::fp32;  ///< of its elements; statistics are kept in the accumulator's type
  std::size_t bytes = 0;      ///< with the parts' alignment
  int slot = 0;               ///< into RankProgram::slots
  friend bool operator==(const BufferDecl&, const BufferDecl&) = default;
};

/// Whether a kernel starts from nothing or from what the buffer holds.
enum class Start : std::uint8_t { fresh, carry };

/// A key segment's part of an attend: its values, and in the backward pass where its gradients go.
struct KeyChunk {
  BufferId key_value{};
  BufferId dkey_value{};       ///< backward only
  Start start = Start::fresh;  ///< of dkey_value; backward only
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
/// The same tiles' gradients, from the global LSE and delta of the query side.
struct AttendBackward {
  BufferId query{}, dquery{};
  std::vector<KeyChunk> keys;
  Start start = Start::fresh;  ///< of dquery
  friend bool operator==(const AttendBackward&, const AttendBackward&) = default;
};
/// into = into ⊕ from: partials (o, lse).
struct Merge {
  BufferId into{}, from{};
  friend bool operator==(const Merge&, const Merge&) = default;
};
/// into = into + from: gradients.
struct Accumulate {
  BufferId into{}, from{};
  friend bool operator==(const Accumulate&, const Accumulate&) = default;
};
/// A result in the wire's element type; statistics keep theirs.
struct Convert {
  BufferId into{}, from{};
  friend bool operator==(const Convert&, const Convert&) = default;
};
/// The identity: (0, −∞) for an output, 0 for gradients.
struct Clear {
  BufferId buffer{};
  friend bool operator==(const Clear&, const Clear&) = default;
};

/// Visited without a default branch: a new operation does not compile until everything knows it.
using Op = std::variant<Send, Recv, Attend, AttendBackward, Merge, Accumulate, Convert, Clear>;

/// Messages of a step that are one all-gather: every member of a row sends its buffer to all others. The buffers stand
/// in the order of their owners, this rank's own among them, and lie side by side in slots of one size, so that a
/// library's collective can fill them where they are. The operations list these messages too: a transport that knows no
/// collectives takes no notice.
struct Gather {
  std::vector<BufferId> buffers;
  friend bool operator==(const Gather&, const Gather&) = default;
};

/// Operations that start together. `number` is the step of the table on every rank; an exchange's messages
/// have all arrived when it ends, and are first used after step `due` (number, but for far messages posted early).
/// Messages of one (number, lane, due) form one group, in the order (peer, value) on both sides; no tags are needed.
struct Step {
  int number = 0;
  int due = 0;
  Lane lane = Lane::compute;
  std::vector<Op> ops;
  std::vector<StepId> after;  ///< steps of other lanes that must have ended; those of its own lane precede it anyway
  std::vector<Gather> gathers = {};  ///< in one order on all ranks that share some
  friend bool operator==(const Step&, const Step&) = default;
};

/// Everything one rank does. Own inputs and results have buffers too; they are filled before the first step and read
/// after the last. Steps stand in an order in which they could run one by one.
struct RankProgram {
  std::vector<BufferDecl> buffers;
  std::vector<std::size_t> slots;  ///< bytes of each
  std::vector<Step> steps;
  friend bool operator==(const RankProgram&, const RankProgram&) = default;
};

/// What all ranks' programs share.
struct Outline {
  std::string name;  ///< of the schedule
  Sharding sharding;
  Pass pass = Pass::forward;
  Mode mode = Mode::overlapped;
  int node_size = 0;  ///< ranks per node; 0: one node
};

struct Schedule {
  Outline outline;
  std::vector<RankProgram> ranks;
};

/// Throws Error(usage) unless the sharding is sound (layout.hpp) and has as many ranks as there are `programs`: then
/// programs can be looked at, and verify() says whether they are right.
void check(const Outline& outline, std::size_t programs);

/// A part of a value's buffer.
struct PartShape {
  std::size_t offset = 0;  ///< bytes from the buffer's start, a multiple of 64
  int heads = 0;
  std::int64_t tokens = 0;
  int dim = 0;  ///< 1 for statistics
  DType dtype = DType::fp32;
  std::size_t bytes = 0;  ///< without alignment: what travels
};
/// A value has five parts at most: a list without memory of its own, because plans make one for millions of buffers.
class PartShapes {
 public:
  std::size_t size() const { return count_; }
  const PartShape& operator[](std::size_t which) const { return parts_[which]; }
  const PartShape* begin() const { return parts_.data(); }
  const PartShape* end() const { return parts_.data() + count_; }
  void push_back(const PartShape& part) { parts_[count_++] = part; }

 private:
  std::array<PartShape, 5> parts_{};
  std::size_t count_ = 0;
};
/// The parts of `value` with elements of `dtype`, in the order of ValueKind's description.
PartShapes parts_of(const Outline& outline, const Value& value, DType dtype);
/// Bytes of a buffer for `value`: its parts, each up to the next multiple of 64.
std::size_t buffer_bytes(const Outline& outline, const Value& value, DType dtype);
/// Bytes that a message with `value` carries: the parts without padding.
std::size_t message_bytes(const Outline& outline, const Value& value, DType dtype);
/// Element type of a value in its own buffer: the problem's for inputs, the accumulator's for results.
DType dtype_of(const Outline& outline, ValueKind kind);
/// Who owns a value's segment.
Rank owner_of(const Outline& outline, const Value& value);
/// Whether two ranks are on different nodes.
bool is_far(const Outline& outline, Rank a, Rank b);
/// "kv(g0, 5)", "o(g0, 3)<-2"
std::string to_string(const Value& value);

/// How wide a table is that people read, where no terminal says it.
inline constexpr std::size_t usual_table_columns = 120;
/// Text form: rows ranks, columns steps, as DistFlashAttn's Figure 1, then every step of every rank with `details`. The
/// table continues in further panels where it is wider than that many columns.
std::string to_text(const Schedule& schedule, bool details, std::size_t columns = usual_table_columns);
/// JSON form; reads back with schedule_from_json. Throws Error(usage) naming the field that is wrong.
std::string to_json(const Schedule& schedule);
Schedule schedule_from_json(std::string_view text);
/// One schedule, or a list of them: a forward and a backward one, as `distattn show` prints both passes.
std::vector<Schedule> schedules_from_json(std::string_view text);

}  // namespace distattn
#pragma GCC visibility pop

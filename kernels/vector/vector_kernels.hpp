#pragma once
/// What is compiled once for every instruction set, and chosen when the program starts.
///
/// A block is up to attend_rows() queries of heads that read one key head. Its state lives in scratch memory of one
/// thread: attend_begin, any number of passes and attend_end of a block are called with the same scratch, and nothing
/// in between uses it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/arguments.hpp"
#include "kernels/dropout.hpp"

namespace distattn::kernels::vector {

/// Rows of one head: element x of row i is `data[i·stride + x]`. A row is aligned to its elements' size.
template <class Element>
struct HeadRows {
  Element* data = nullptr;
  std::int64_t stride = 0;
};

/// Keys or values of one head: those of page 0, where there are pages.
struct KeyRows : HeadRows<const void> {
  PageTable pages{};
  std::int64_t page = 0;  ///< elements from a page to the next
};

/// The same queries of some heads that read one key head, which therefore is packed once for all of them. Heads lie
/// `q_head`, `o_head` and `lse_head` elements apart. o and lse have the rows of q.
struct AttendBlock {
  DType dtype = DType::fp32;  ///< of q, k, v; not fp64
  int head_dim = 0, value_dim = 0;
  Scores scores{1};
  const double* alibi_slopes = nullptr;  ///< by head; null: no bias
  int queries = 0, heads = 1;
  Run positions;  ///< of the queries
  HeadRows<const void> q;
  std::int64_t q_head = 0;
  HeadRows<float> o;
  std::int64_t o_head = 0;
  float* lse = nullptr;
  std::uint16_t* lse_low = nullptr;  ///< as lse, or null
  std::int64_t lse_head = 0;
  bool carry = false;
  float* max_logit = nullptr;  ///< null, or by head: raised to the largest score
  HeadDropout dropout{};       ///< of the first head; those of others have the next numbers
};

/// Keys of one head, `keys` of a segment, that the queries of a block see: query i of any head those with
/// begin[i] ≤ index < end[i]. Both arrays have attend_rows() entries; those past the block's queries are 0.
struct AttendPass {
  KeyRows k, v;
  std::int64_t keys = 0;
  Run positions;  ///< of the segment's keys
  const std::int32_t* begin = nullptr;
  const std::int32_t* end = nullptr;
};

/// Most pieces of a block's keys that few_end merges.
inline constexpr int most_pieces = 64;

/// Few queries of some heads that read one key head: row h·queries + i is query i of head h. Heads lie `q_head` and
/// `o_head` elements apart.
struct FewBlock {
  DType dtype = DType::fp32;  ///< of q, k, v; not fp64
  int head_dim = 0, value_dim = 0;
  Scores scores{1};
  const double* alibi_slopes = nullptr;  ///< by head; null: no bias
  int queries = 0, heads = 0;
  Run positions;  ///< of the queries
  HeadRows<const void> q;
  std::int64_t q_head = 0;
  HeadRows<float> o;
  std::int64_t o_head = 0;
  float* lse = nullptr;              ///< of every row
  std::uint16_t* lse_low = nullptr;  ///< as lse, or null
  bool carry = false;
  float* max_logit = nullptr;  ///< null, or by head: raised to the largest score
  HeadDropout dropout{};       ///< as in AttendBlock

  int rows() const { return queries * heads; }
};

/// Most heads of one few_pass.
inline constexpr int most_few_heads = 32;

/// A block and the keys of its key head, with the block's own scratch and sums.
struct FewHead {
  FewBlock block;
  AttendPass pass;
  std::byte* scratch = nullptr;
  std::byte* sums = nullptr;
};

/// A chunk of up to backward_chunk keys of one head, and where sums of its gradients are added, or written when not
/// carry. It is some of the `segment_keys` keys that `segment` begins with.
struct BackwardChunk {
  DType dtype = DType::fp32;  ///< of k, v, q, d_o; not fp64
  int head_dim = 0, value_dim = 0;
  Scores scores{1};
  HeadRows<const void> k, v;
  int keys = 0;
  Run positions;  ///< of the keys
  HeadRows<const void> segment;
  std::int64_t segment_keys = 0;
  HeadRows<float> dk, dv;
  bool carry = false;
};

/// Up to backward_rows queries of one head. dQ is added to, or written when not carry. `few`: their operation has
/// few_queries at most. `next_q`, `next_d_o`: rows that will probably be asked for soon.
struct BackwardBlock {
  HeadRows<const void> q, d_o;
  const float* lse = nullptr;
  const std::uint16_t* lse_low = nullptr;  ///< as lse, or null
  const float* delta = nullptr;
  int rows = 0;
  Run positions;                        ///< of the queries
  const double* alibi_slope = nullptr;  ///< of the head; null: no bias
  HeadDropout dropout{};
  bool few = false;
  HeadRows<float> dq;
  bool carry = false;
  const float* shared = nullptr;  ///< [head_dim], or null: dQ may leave out sums · shared, as in AttendBackwardArgs
  float *sums = nullptr, *squares = nullptr;
  HeadRows<const void> next_q, next_d_o;
  int next_rows = 0;
};

/// A segment's keys of one head.
struct SegmentKeys {
  DType dtype = DType::fp32;
  int head_dim = 0;
  HeadRows<const void> k;
  std::int64_t keys = 0;
};

struct VectorKernels {
  int attend_panel;  ///< queries that are computed together
  /// HostKernels::query_block, on average over tiles of several shapes.
  int query_block;
  /// Most rows of a block, each of whose heads begins with a panel, and bytes of scratch that it needs (64-byte
  /// aligned).
  int (*attend_rows)(int head_dim, int value_dim);
  std::size_t (*attend_scratch)(int head_dim, int value_dim);
  void (*attend_begin)(const AttendBlock& block, std::byte* scratch);
  void (*attend_pass)(const AttendBlock& block, const AttendPass& pass, std::byte* scratch, const StopFlag& stop);
  void (*attend_end)(const AttendBlock& block, std::byte* scratch);

  /// Operations with at most few_queries queries are done in blocks of at most few_rows rows: for each block and piece
  /// of its keys few_begin and any number of passes with the same scratch and sums, then few_end of all its sums, which
  /// lie one after the other. A pass is over keys [first, last) of several blocks of one sequence, whose query i sees
  /// begin[i] ≤ index < end[i] of them in every block. Pieces should end at multiples of few_keys.
  int few_queries, few_rows, few_keys;
  std::size_t (*few_scratch)(int rows, int head_dim, int value_dim);
  std::size_t (*few_sums)(int rows, int value_dim);
  void (*few_begin)(const FewBlock& block, std::byte* scratch, std::byte* sums);
  void (*few_pass)(std::span<const FewHead> heads, int first, int last, const StopFlag& stop);
  void (*few_end)(const FewBlock& block, std::byte* sums, int pieces);

  /// Most rows of a block, keys that a block meets at once, most keys of a chunk (a multiple of these), and bytes of
  /// scratch that a chunk and a block need.
  int backward_rows, backward_keys;
  int (*backward_chunk)(int head_dim, int value_dim);
  std::size_t (*backward_scratch)(int head_dim, int value_dim);
  /// For each chunk, any number of sums; for each sum, any number of blocks; for each block, any number of passes; all
  /// with the same scratch. The end of a sum adds dK and dV over its blocks to the results, that of a block dQ over its
  /// passes. In a pass query i sees keys begin[i] ≤ index < end[i] of the chunk; both arrays have backward_rows
  /// entries, 0 past the block's rows and for queries without a key in the whole attention (lse −∞).
  void (*backward_chunk_begin)(const BackwardChunk& chunk, std::byte* scratch);
  void (*backward_sum_begin)(const BackwardChunk& chunk, std::byte* scratch);
  void (*backward_block_begin)(const BackwardChunk& chunk, const BackwardBlock& block, std::byte* scratch);
  void (*backward_pass)(const BackwardChunk& chunk, const BackwardBlock& block, const std::int32_t* begin,
                        const std::int32_t* end, std::byte* scratch, const StopFlag& stop);
  void (*backward_block_end)(const BackwardChunk& chunk, const BackwardBlock& block, std::byte* scratch);
  void (*backward_sum_end)(const BackwardChunk& chunk, std::byte* scratch);
  /// into[x], for head_dim elements, is about what the keys have in common, or 0.
  void (*find_shared)(const SegmentKeys& segment, float* into);
  /// How many products of pairs these kernels do in the time of one of fp32, measured by each call (some 0.3 ms); null
  /// where they multiply no pairs.
  double (*pair_speed)();
};

/// One for each instruction set that this build has code for.
namespace isa_generic {
extern const VectorKernels vector_kernels;
}
namespace isa_avx2 {
extern const VectorKernels vector_kernels;
}
namespace isa_avx512 {
extern const VectorKernels vector_kernels;
}
/// Of bf16 alone, whose products take pairs of it (operands.hpp). Those of few queries are avx512's.
namespace isa_avx512_bf16 {
extern const VectorKernels vector_kernels;
}
/// The same by tiles (tiles.hpp).
namespace isa_amx {
extern const VectorKernels vector_kernels;
}

}  // namespace distattn::kernels::vector

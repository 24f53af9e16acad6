#pragma once
/// Operations of few queries, cut into what threads do side by side: the query heads of one key head together, their
/// keys in pieces, and of a piece as many key heads as leave every thread some.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/vector/blocks.hpp"
#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector {

/// Kept from call to call, so that a call like the last one allocates nothing. Pieces depend on what the queries see
/// and not on the number of threads, which therefore changes no bit of a result; which heads go together changes none.
class FewPlan {
 public:
  /// Plans those of `operations` that have few queries. What they point to must stay until the last call of end().
  void make(std::span<const AttendArgs> operations, const VectorKernels& kernels, int threads);

  std::int64_t items() const { return static_cast<std::int64_t>(items_.size()); }
  std::int64_t ends() const { return static_cast<std::int64_t>(split_.size()); }
  /// Bytes that each thread needs.
  std::size_t scratch_bytes() const { return scratch_bytes_; }

  /// The sums of an item, which is some blocks of rows and one piece of their keys, and (o, lse) where that is the only
  /// one.
  void sum(std::int64_t item, std::byte* scratch, const StopFlag& stop);
  /// (o, lse) of a block in several pieces, after all sums.
  void end(std::int64_t number);

 private:
  /// Keys [first, last) of a side that queries see, and what each of them sees of the side.
  struct Stretch {
    const KeySide* side;
    std::size_t ranges;  ///< into ranges_: every query's begin, then every query's end
    std::int64_t first, last;
  };
  /// Stretches one after the other.
  struct Piece {
    std::size_t stretches, stretches_end;
  };
  /// Query heads that read one key head.
  struct Block {
    const AttendArgs* args;
    std::int64_t batch;
    int head, heads;
    std::size_t pieces, pieces_end;
    std::size_t sums, piece_bytes;  ///< where in sums_ those of the first piece begin, and how much a piece's take
  };
  /// Blocks [block, blocks_end), whose rows of keys lie side by side, and a piece of these.
  struct Item {
    std::size_t block, blocks_end, piece;
  };
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  void add(const AttendArgs& args, int threads);
  void add_items(std::size_t first_block, std::size_t first_piece, int threads);
  std::size_t block_scratch(const Block& block) const;
  void end(const Block& block);
  void find_stretches(const AttendArgs& args);
  void cut_stretches();
  FewBlock rows_of(const Block& block) const;
  AttendPass pass_of(const Block& block, const Stretch& stretch) const;
  std::byte* sums_of(const Block& block, std::size_t piece);

  const VectorKernels* kernels_ = nullptr;
  std::int64_t sequences_ = 0;  ///< of all operations
  QueryBlocks queries_;
  std::vector<std::int32_t> ranges_;
  std::vector<Stretch> seen_, stretches_;
  std::vector<Piece> pieces_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> split_;  ///< blocks in several pieces
  std::vector<Item> items_;
  std::vector<Line> sums_;
  std::size_t sums_bytes_ = 0, scratch_bytes_ = 0;
};

}  // namespace distattn::kernels::vector

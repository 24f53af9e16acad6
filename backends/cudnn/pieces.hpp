#pragma once
/// Which tiles cuDNN can express: rectangles of pairs between two diagonals.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "distattn/band.hpp"
#include "kernels/arguments.hpp"

namespace distattn::backends::cudnn {

/// Rows and columns of a tile of queries × keys. With i and j counted from their beginnings, row i sees column j if
/// i - left < j ≤ i + right. Every row sees a column: what cuDNN leaves of others is not documented. With `left` there
/// are no more rows than columns: NVIDIA's own front end asks cuDNN for nothing else.
struct Piece {
  IndexRange rows, columns;
  std::optional<std::int64_t> left, right;  ///< none: unbounded on that side
};

/// Pieces that together are the visible pairs of queries × keys, each pair once. Throws Error(usage) where the
/// diagonal is none: queries and keys of different strides that a band cuts.
std::vector<Piece> pieces_of(const Run& queries, const Run& keys, std::span<const Band> bands);

/// Why cuDNN of that version, as cudnnGetVersion() says it, does not compute a piece in that pass, and what to do;
/// empty if it does. NVIDIA's own front end refuses or works around the same.
std::string why_no_piece(const Piece& piece, Pass pass, std::size_t version);

/// What cuDNN computes.
inline constexpr Features attend_features{Feature::bf16, Feature::fp16};

/// Why cuDNN computes no tile of this shape; empty if it does.
std::string why_no_tile(const kernels::TileShape& shape);

/// Why cuDNN of that version computes no gradients of heads of these dimensions on a GPU of that compute capability (as
/// 90); empty if it does. The same is refused by NVIDIA's own front end.
std::string why_no_gradients(int head_dim, int value_dim, int architecture, std::size_t version);

}  // namespace distattn::backends::cudnn
